// See settings.h.
#include "settings.h"

namespace peerax {

Settings& TheSettings() {
  static Settings* settings = new Settings;
  return *settings;
}

Totals& TheTotals() {
  static Totals* totals = new Totals;
  return *totals;
}

std::map<std::string, CodeText>& TheCodeTexts() {
  static auto* texts = new std::map<std::string, CodeText>;
  return *texts;
}

}  // namespace peerax
