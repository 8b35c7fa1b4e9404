// The FFI entry points, by stage; module.cc hands them to Python, which registers them with XLA.
#pragma once

#include "xla/ffi/api/ffi.h"

namespace peerax {

struct HandlerEntry {
  const char* target;            // FFI target name
  XLA_FFI_Handler* instantiate;  // or nullptr
  XLA_FFI_Handler* execute;
};
extern const HandlerEntry kHandlers[];
extern const int kHandlerCount;

struct TypeEntry {
  const char* name;
  XLA_FFI_TypeId* id;
  const XLA_FFI_TypeInfo* info;
};
extern const TypeEntry kTypes[];
extern const int kTypeCount;

}  // namespace peerax
