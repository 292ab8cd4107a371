#include "runtime/api/backends/why.h"

#include "runtime/base/json.h"

namespace distrun::api {
namespace {

// The fields of one JSON object.
class Fields {
 public:
  Fields& json(std::string_view name, const std::string& value) {
    text_ += (text_.empty() ? "" : ", ") + json_string(name) + ": " + value;
    return *this;
  }
  Fields& text(std::string_view name, std::string_view value) { return json(name, json_string(value)); }
  Fields& number(std::string_view name, int value) { return json(name, std::to_string(value)); }
  [[nodiscard]] std::string object() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

template <class T, class ToJson>
std::string list_of(const std::vector<T>& values, ToJson&& to_json) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : ", ") + to_json(value);
  return "[" + text + "]";
}

std::string loser_json(const backend::Loser& loser) {
  Fields fields;
  fields.text("backend", loser.backend).text("code", name_of(loser.code)).text("reason", loser.reason);
  if (loser.rank >= 0) fields.number("rank", loser.rank).text("host", loser.host);
  if (loser.score >= 0) fields.number("score", loser.score);
  return fields.object();
}

std::string choice_json(const Choice& choice) {
  const backend::Selection& selection = choice.selection;
  const std::string chosen = Fields()
                                 .text("code", selection.set ? "set" : "highest_score")
                                 .text("reason", selection.reason)
                                 .number("score", selection.score)
                                 .object();
  return Fields()
      .number("process_set", choice.process_set)
      .text("device", name_of(choice.device))
      .text("backend", selection.backend)
      .json("chosen", chosen)
      .json("losers", list_of(selection.losers, loser_json))
      .object();
}

}  // namespace

std::string to_text(const Choice& choice) {
  std::string text = "process set " + std::to_string(choice.process_set) + ": " + std::string(name_of(choice.device)) +
                     ": " + choice.selection.backend + " (" + choice.selection.reason + ")";
  for (const backend::Loser& loser : choice.selection.losers) {
    text += "\n  not " + loser.backend + ": " + loser.reason;
  }
  return text;
}

std::string to_json(const std::vector<Choice>& choices) { return list_of(choices, choice_json); }

}  // namespace distrun::api
