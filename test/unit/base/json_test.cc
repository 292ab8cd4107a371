#include "runtime/base/json.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

namespace distrun {
namespace {

TEST_CASE("lists and objects are read with what they hold") {
  const auto read = parse_json(R"( {"a": [1, "two", true], "b": {"c": null, "d": "\"}"}, "": []} )");
  REQUIRE(read);
  REQUIRE(read->kind == Json::Kind::kObject);
  const Json* const a = read->find("a");
  REQUIRE(a != nullptr);
  REQUIRE(a->values.size() == 3);
  CHECK((a->values[0].kind == Json::Kind::kWord && a->values[0].text == "1"));
  CHECK((a->values[1].kind == Json::Kind::kText && a->values[1].text == "two"));
  const Json* const b = read->find("b");
  REQUIRE(b != nullptr);
  REQUIRE(b->find("d") != nullptr);
  CHECK(b->find("d")->text == R"(\"})");
  CHECK(read->find("")->values.empty());
  CHECK(read->find("e") == nullptr);
  CHECK(a->find("a") == nullptr);
}

TEST_CASE("what is no JSON is nothing") {
  for (const char* text : {"", " ", "{", "[1,", "[1 2]", "{\"a\"}", "{\"a\": }", "{1: 2}", "[1]]", "\"open", "\"\\",
                           "[,]", "{\"a\": 1,}", "[1}"}) {
    INFO(text);
    CHECK_FALSE(parse_json(text));
  }
  CHECK(parse_json(std::string(20, '[') + std::string(20, ']')));
  CHECK_FALSE(parse_json(std::string(1000, '[') + std::string(1000, ']')));
}

TEST_CASE("a string that is written is JSON whatever its bytes are") {
  CHECK(json_string("") == "\"\"");
  CHECK(json_string("a \"b\" \\ \n") == "\"a \\\"b\\\" \\\\ \\u000a\"");
  CHECK(json_string("\xC3\xA4 \xFF") == "\"\xC3\xA4 \\u00ff\"");
}

}  // namespace
}  // namespace distrun
