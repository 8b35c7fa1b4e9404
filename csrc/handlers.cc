// XLA FFI handlers: they translate buffers and attributes, and call the session. No Python, no logic of their own.
//
// The body of a shard_map is rewritten so that every communicating operation takes the session's handle, two uint32
// that hold a Session*, and gives it on: that is the total order. One that receives leaves that to "after", which waits
// for what is received: XLA computes in place on the result of a call only if it is the only one. (What has no elements
// is no dependency to XLA; a call that receives nothing else gives the handle on itself.) The handle is the same on all
// ranks, so XLA may treat it as replicated; which rank a call is for is known by its device. A handler never blocks: it
// returns a future, and XLA's thread is free for other ranks, however few threads XLA has.
#include "handlers.h"

#include <cfenv>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "session.h"
#include "watchdog.h"

namespace ffi = xla::ffi;

namespace peerax {
namespace {

using Handle = ffi::Buffer<ffi::U32>;
using HandleResult = ffi::Result<ffi::Buffer<ffi::U32>>;

// Done, failed, or known later.
struct Outcome {
  std::variant<ffi::Error, ffi::Future> value;
};

Outcome Done() { return {ffi::Error::Success()}; }

ffi::Error Failed(const Failure& failure) { return ffi::Error(ffi::ErrorCode::kAborted, failure.text); }

void ToHandle(Session* session, HandleResult& handle) {
  std::memcpy(handle->untyped_data(), &session, sizeof session);
}

Session* ToSession(const Handle& handle) {
  Session* session = nullptr;
  std::memcpy(&session, handle.untyped_data(), sizeof session);
  return session;
}

// The rank that this call is for.
Rank& RankOf(const Handle& handle, std::int32_t device) { return ToSession(handle)->rank_on_device(device); }

// The rank that this call is for; gives the handle on.
Rank& PassHandle(const Handle& in, std::int32_t device, HandleResult& out) {
  ToHandle(ToSession(in), out);
  return RankOf(in, device);
}

// The floating-point mode (flush to zero) belongs to XLA's thread; a rank must find it again where it goes on.
std::function<void()> OnThisMode(std::function<void()> resume) {
  std::fenv_t mode;
  std::fegetenv(&mode);
  return [mode, resume = std::move(resume)] {
    std::fesetenv(&mode);
    resume();
  };
}

// Calls done() when the rank's operation is complete: now, or on a resume thread.
template <typename DoneFunction>
Outcome Finish(Rank& rank, DoneFunction done) {
  std::optional<ffi::Future> later;
  const bool complete = rank.session->Finish(rank, [&] {
    ffi::Promise promise;
    later.emplace(promise);
    return OnThisMode([promise = std::move(promise), done]() mutable {
      ffi::Error error = done();
      if (error.success()) {
        promise.SetAvailable();
      } else {
        promise.SetError(std::move(error));
      }
    });
  });
  if (complete) return {done()};
  return {std::move(*later)};
}

Outcome Finish(Rank& rank) {
  return Finish(rank, [] { return ffi::Error::Success(); });
}

struct OperationState {
  static ffi::TypeId id;
  Operation operation;
};
ffi::TypeId OperationState::id = {};
constexpr ffi::TypeInfo kOperationInfo = ffi::MakeTypeInfo<OperationState>();

struct BodyState {
  static ffi::TypeId id;
  std::int32_t size;     // ranks
  std::int32_t devices;  // of this process: device ordinals are below it
};
ffi::TypeId BodyState::id = {};
constexpr ffi::TypeInfo kBodyInfo = ffi::MakeTypeInfo<BodyState>();

std::vector<std::string> Split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = text.find(';');
    parts.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return parts;
}

std::vector<std::int32_t> ToVector(ffi::Span<const std::int32_t> span) { return {span.begin(), span.end()}; }

ffi::ErrorOr<std::unique_ptr<OperationState>> MakeOperation(std::string_view kind, std::string_view name,
                                                            std::string_view site, std::string_view receive_site,
                                                            std::int64_t tag, std::int64_t pair,
                                                            std::string_view path,
                                                            std::string_view types,
                                                            ffi::Span<const std::int32_t> destination,
                                                            ffi::Span<const std::int32_t> source,
                                                            ffi::Span<const std::int32_t> in_place,
                                                            ffi::Span<const std::int32_t> group) {
  auto state = std::make_unique<OperationState>();
  Operation* operation = &state->operation;
  static std::atomic<std::int64_t> operations{0};
  operation->id = operations.fetch_add(1, std::memory_order_relaxed);
  operation->kind = kind == "send"       ? Kind::kSend
                    : kind == "receive"  ? Kind::kReceive
                    : kind == "exchange" ? Kind::kExchange
                                         : Kind::kGather;
  operation->name = name;
  operation->site = site;
  operation->receive_site = receive_site;
  operation->tag = tag;
  operation->pair = pair;
  operation->path = path;
  operation->types = Split(types);
  operation->destination = ToVector(destination);
  operation->source = ToVector(source);
  operation->in_place.assign(in_place.begin(), in_place.end());
  operation->group = ToVector(group);
  return state;
}

ffi::ErrorOr<std::unique_ptr<BodyState>> MakeBody(std::int64_t size, std::int64_t devices) {
  auto state = std::make_unique<BodyState>();
  state->size = static_cast<std::int32_t>(size);
  state->devices = static_cast<std::int32_t>(devices);
  return state;
}

std::vector<ConstView> Inputs(ffi::RemainingArgs args, std::size_t count) {
  std::vector<ConstView> views;
  views.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto buffer = args.get<ffi::AnyBuffer>(i);
    views.push_back({buffer->untyped_data(), buffer->size_bytes()});
  }
  return views;
}

std::vector<ConstView> Inputs(ffi::RemainingArgs args) { return Inputs(args, args.size()); }

// What an operation sends. A token may follow: it has been waited for, and has no other use.
std::vector<ConstView> Messages(ffi::RemainingArgs args, const OperationState& state) {
  return Inputs(args, state.operation.types.size());
}

std::vector<View> Outputs(ffi::RemainingRets rets) {
  std::vector<View> views;
  views.reserve(rets.size());
  for (std::size_t i = 0; i < rets.size(); ++i) {
    auto buffer = rets.get<ffi::AnyBuffer>(i);
    views.push_back({(*buffer)->untyped_data(), (*buffer)->size_bytes()});
  }
  return views;
}

// Results that XLA did not give the memory of their operands.
void PassOn(const std::vector<ConstView>& from, const std::vector<View>& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i].data != to[i].data && from[i].size_bytes != 0) {
      std::memcpy(to[i].data, from[i].data, from[i].size_bytes);
    }
  }
}

// What an operation receives. A result more is the handle, which comes first then.
std::vector<View> Results(ffi::RemainingRets rets, const OperationState& state, const Handle& handle) {
  std::vector<View> views = Outputs(rets);
  if (views.size() == state.operation.types.size()) return views;
  PassOn({{handle.untyped_data(), handle.size_bytes()}}, views);
  return {views.begin() + 1, views.end()};
}

Outcome OnBegin(ffi::RunId run, std::int32_t device, BodyState* body, ffi::Buffer<ffi::U32> partition,
                ffi::RemainingArgs, HandleResult handle) {
  const auto index = static_cast<std::int32_t>(partition.typed_data()[0]);
  ToHandle(JoinSession(run.run_id, body, index, device, body->size, body->devices), handle);
  return Done();
}

Outcome OnEnd(std::int32_t device, Handle handle, ffi::RemainingArgs args, HandleResult out, ffi::RemainingRets rets) {
  Rank& rank = PassHandle(handle, device, out);
  PassOn(Inputs(args), Outputs(rets));
  const std::shared_ptr<Session> session = std::move(rank.keep);
  session->StartEnd(rank);
  // The report of a failed run is taken by whoever started it. An error here would end the rank's program, and other
  // ranks might wait for it in a collective of XLA's that has nothing to do with this body; so there is one only if
  // another rank has ended already, and would be waited for.
  return Finish(rank, [session] {
    return session->EndsWithError() ? Failed(*session->failure()) : ffi::Error::Success();
  });
}

Outcome OnSend(std::int32_t device, OperationState* state, Handle handle, ffi::RemainingArgs args, HandleResult out) {
  Rank& rank = PassHandle(handle, device, out);
  rank.session->StartSend(rank, state->operation, Messages(args, *state));
  return Finish(rank);
}

Outcome OnReceive(std::int32_t device, OperationState* state, Handle handle, ffi::AnyBuffer, ffi::RemainingRets rets) {
  Rank& rank = RankOf(handle, device);
  rank.session->StartReceive(rank, state->operation, Results(rets, *state, handle));
  return Finish(rank);
}

Outcome OnExchange(std::int32_t device, OperationState* state, Handle handle, ffi::RemainingArgs args,
                   ffi::RemainingRets rets) {
  Rank& rank = RankOf(handle, device);
  const std::vector<ConstView> sent = Messages(args, *state);
  const std::vector<View> received = Results(rets, *state, handle);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (state->operation.in_place[i]) PassOn({sent[i]}, {received[i]});
  }
  rank.session->StartExchange(rank, state->operation, sent, received);
  return Finish(rank);
}

// In front of one of JAX's own collectives, whose operands pass through.
Outcome OnGather(std::int32_t device, OperationState* state, Handle handle, ffi::RemainingArgs args, HandleResult out,
               ffi::RemainingRets rets) {
  Rank& rank = PassHandle(handle, device, out);
  PassOn(Inputs(args), Outputs(rets));
  const std::shared_ptr<Session> session = rank.session->shared_from_this();
  session->StartGather(rank, state->operation);
  return Finish(rank, [session, &rank] {
    if (session->MayEnterCollective(rank)) return ffi::Error::Success();
    rank.keep = nullptr;
    return Failed(*session->failure());
  });
}

// The first operand, not before the others are there.
Outcome OnAfter(ffi::AnyBuffer in, ffi::RemainingArgs, ffi::Result<ffi::AnyBuffer> out) {
  PassOn({{in.untyped_data(), in.size_bytes()}}, {{out->untyped_data(), out->size_bytes()}});
  return Done();
}

// Identity on all operands; no result before all operands are there.
Outcome OnOrder(ffi::RemainingArgs args, ffi::RemainingRets rets) {
  PassOn(Inputs(args), Outputs(rets));
  return Done();
}

}  // namespace
}  // namespace peerax

// A synchronous outcome needs no future at all, which is the common case.
template <ffi::ExecutionStage stage>
struct xla::ffi::ResultEncoding<stage, peerax::Outcome> {
  static std::variant<XLA_FFI_Error*, XLA_FFI_Future*> Encode(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* ctx,
                                                              peerax::Outcome outcome) {
    if (auto* error = std::get_if<Error>(&outcome.value)) {
      return ResultEncoding<stage, Error>::Encode(api, ctx, std::move(*error));
    }
    return ResultEncoding<stage, Future>::Encode(api, ctx, std::move(std::get<Future>(outcome.value)));
  }
};

namespace peerax {

auto BindOperation() { return ffi::Ffi::Bind().Ctx<ffi::DeviceOrdinal>().Ctx<ffi::State<OperationState>>(); }

XLA_FFI_DEFINE_HANDLER(kMakeOperation, MakeOperation,
                       ffi::Ffi::BindInstantiate()
                           .Attr<std::string_view>("kind")
                           .Attr<std::string_view>("name")
                           .Attr<std::string_view>("site")
                           .Attr<std::string_view>("receive_site")
                           .Attr<std::int64_t>("tag")
                           .Attr<std::int64_t>("pair")
                           .Attr<std::string_view>("path")
                           .Attr<std::string_view>("types")
                           .Attr<ffi::Span<const std::int32_t>>("destination")
                           .Attr<ffi::Span<const std::int32_t>>("source")
                           .Attr<ffi::Span<const std::int32_t>>("in_place")
                           .Attr<ffi::Span<const std::int32_t>>("group"));
XLA_FFI_DEFINE_HANDLER(kMakeBody, MakeBody, ffi::Ffi::BindInstantiate().Attr<std::int64_t>("size").Attr<std::int64_t>("devices"));

XLA_FFI_DEFINE_HANDLER(kBegin, OnBegin,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::RunId>()
                           .Ctx<ffi::DeviceOrdinal>()
                           .Ctx<ffi::State<BodyState>>()
                           .Arg<ffi::Buffer<ffi::U32>>()
                           .RemainingArgs()
                           .Ret<Handle>());
XLA_FFI_DEFINE_HANDLER(kEnd, OnEnd, ffi::Ffi::Bind().Ctx<ffi::DeviceOrdinal>().Arg<Handle>().RemainingArgs().Ret<Handle>().RemainingRets());
XLA_FFI_DEFINE_HANDLER(kSend, OnSend, BindOperation().Arg<Handle>().RemainingArgs().Ret<Handle>());
XLA_FFI_DEFINE_HANDLER(kReceive, OnReceive, BindOperation().Arg<Handle>().Arg<ffi::AnyBuffer>().RemainingRets());
XLA_FFI_DEFINE_HANDLER(kExchange, OnExchange, BindOperation().Arg<Handle>().RemainingArgs().RemainingRets());
XLA_FFI_DEFINE_HANDLER(kGather, OnGather,
                       BindOperation().Arg<Handle>().RemainingArgs().Ret<Handle>().RemainingRets());
XLA_FFI_DEFINE_HANDLER(kAfter, OnAfter, ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().RemainingArgs().Ret<ffi::AnyBuffer>());
XLA_FFI_DEFINE_HANDLER(kOrder, OnOrder, ffi::Ffi::Bind().RemainingArgs().RemainingRets());

const HandlerEntry kHandlers[] = {
    {"peerax_begin", kMakeBody, kBegin},
    {"peerax_end", nullptr, kEnd},
    {"peerax_send", kMakeOperation, kSend},
    {"peerax_receive", kMakeOperation, kReceive},
    {"peerax_exchange", kMakeOperation, kExchange},
    {"peerax_gather", kMakeOperation, kGather},
    {"peerax_after", nullptr, kAfter},
    {"peerax_order", nullptr, kOrder},
};
const int kHandlerCount = sizeof kHandlers / sizeof kHandlers[0];

const TypeEntry kTypes[] = {
    {"peerax_operation", &OperationState::id, &kOperationInfo},
    {"peerax_body", &BodyState::id, &kBodyInfo},
};
const int kTypeCount = sizeof kTypes / sizeof kTypes[0];

}  // namespace peerax
