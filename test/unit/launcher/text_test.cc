// Texts of programs on the terminal.
#include "launcher/plan/hosts/text.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "launcher/plan/hosts/pasted.h"

namespace distrun::launcher {
namespace {

TEST_CASE("a file from Windows reads as one from Unix") {
  CHECK(*unix_text("\xef\xbb\xbf"
                   "a\r\nb\r\n",
                   "f") == "a\nb\n");
  CHECK(*unix_text("a\n\r\nb\rc\n\xef\xbb\xbf\r", "f") == "a\n\nb\rc\n\xef\xbb\xbf");
  CHECK(unix_text("", "f")->empty());
  CHECK(*unix_text("\n\n", "f") == "\n\n");
  CHECK_FALSE(unix_text("\xff\xfe"
                        "a",
                        "f")
                  .ok());
  CHECK_FALSE(unix_text("\xfe\xff"
                        "a",
                        "f")
                  .ok());
}

TEST_CASE("a NUL byte in a text file is named with its place") {
  using namespace std::string_literals;
  const auto text = unix_text("a = 1\r\nbc\0d\n"s, "cfg");
  REQUIRE_FALSE(text.ok());
  CHECK(text.status().message().starts_with("cfg:2:3: this is a NUL byte"));
  CHECK(text.status().message().find('\0') == std::string::npos);
  CHECK(unix_text("\xff\xfe"
                  "a",
                  "cfg")
            .status()
            .message()
            .starts_with("cfg: it is UTF-16 text"));
}

TEST_CASE("a terminal shows the text of a program and obeys nothing in it") {
  CHECK(printable("train.py \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80") == "train.py \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
  CHECK(printable("a\x1b[31m\tb\r\n\x7f") == "a\\x1b[31m\\tb\\r\\n\\x7f");
  CHECK(printable("\xc2\x9b"
                  "2J") == "\\u009b2J");  // the one-character form of ESC [
  CHECK(printable("a\xe2\x80\xae"
                  "b") == "a\\u202eb");  // what follows would be written from right to left
  CHECK(printable("a\xe2\x80\xa8"
                  "b\xe2\x81\xa6") == "a\\u2028b\\u2066");
  CHECK(printable("\xff"
                  "a\xe2\x82") ==
        "\xef\xbf\xbd"
        "a\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(printable_lines("a\x1b\n\nb\n") == "a\\x1b\n\nb\n");
  CHECK(printable_lines("b\r\n\r\na\rb\r\r\nc\r") == "b\n\na\\rb\nc");
  CHECK(printable_lines("").empty());
  CHECK(in_quotes("a\x1b") == "'a\\x1b'");
  CHECK(in_quotes(std::string(59, 'a') + "\xc3\xa4") == "'" + std::string(59, 'a') + "...'");
}

TEST_CASE("a long text keeps the part that tells most, and whole characters") {
  CHECK(cut_middle("0123456789", 10) == "0123456789");
  CHECK(cut_middle("0123456789", 9) == "012...789");
  CHECK(cut_front("0123456789", 9) == "...456789");
  const std::string umlauts = "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4";
  for (std::size_t most = 4; most <= umlauts.size(); ++most) {
    for (const std::string& cut : {cut_middle(umlauts, most), cut_front(umlauts, most)}) {
      CHECK(cut.size() <= most);
      CHECK(valid_utf8(cut) == cut);
    }
  }
}

TEST_CASE("a sentence has one end") {
  CHECK(sentence("host h2 is lost") == "host h2 is lost.");
  CHECK(sentence("closed by remote host.") == "closed by remote host.");
  CHECK(sentence("was it killed?") == "was it killed?");
  CHECK(sentence("").empty());
}

TEST_CASE("a name in other letters is found") {
  CHECK(did_you_mean("--TAG", {"--tag", "--tty"}) == "; did you mean --tag?");
  CHECK(did_you_mean("HOSTS", {"hosts", "output"}) == "; did you mean hosts?");
  CHECK(did_you_mean("XYZW", {"hosts"}).empty());
}

TEST_CASE("characters that documents put in place of ASCII are named, each once") {
  CHECK(note_on_pasted("plain text, m\u00fcller").empty());
  CHECK(note_on_pasted("\u2019a\u2019") ==
        "\nThe text has the character U+2019 (right single quotation mark), as documents have it. Type ' instead.");
  const std::string many = note_on_pasted("\u200b \u2013 \u201c \u201d");
  CHECK(many.starts_with("\nThe text has the character U+200B (zero-width space), as documents have it. Remove it.\n"));
  CHECK(std::count(many.begin(), many.end(), '\n') == 3);
  for (const char* text : {"\u2212np", "\u00a0-np", "\u200b-np", "\u2060-np", "\u00ad-np", "\u202f-np", "\ufeff-np",
                           "\u2003-np", "\u202e-np"}) {
    CHECK(begins_with_pasted(text));
  }
  for (const char* text : {"", "-np", "a\u2013", "\u201ca", "\xe2\x80"}) CHECK_FALSE(begins_with_pasted(text));
}

}  // namespace
}  // namespace distrun::launcher
