#include "launcher/plan/hosts/pasted.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <vector>

#include "launcher/plan/hosts/text.h"

namespace distrun::launcher {
namespace {

constexpr std::string_view kDash = "-";
constexpr std::string_view kQuote = "'";
constexpr std::string_view kDoubleQuote = "\"";
constexpr std::string_view kSpace = "a space";
constexpr std::string_view kNothing;  // it only has to go

struct Pasted {
  char32_t code;
  std::string_view name;
  std::string_view instead;
};

constexpr Pasted kPasted[] = {
    {0x00A0, "no-break space", kSpace},
    {0x00AB, "left angle quotation mark", kDoubleQuote},
    {0x00AD, "soft hyphen", kNothing},
    {0x00B4, "acute accent", kQuote},
    {0x00BB, "right angle quotation mark", kDoubleQuote},
    {0x061C, "Arabic letter mark", kNothing},
    {0x1680, "Ogham space mark", kSpace},
    {0x180E, "Mongolian vowel separator", kNothing},
    {0x2000, "en quad", kSpace},
    {0x2001, "em quad", kSpace},
    {0x2002, "en space", kSpace},
    {0x2003, "em space", kSpace},
    {0x2004, "three-per-em space", kSpace},
    {0x2005, "four-per-em space", kSpace},
    {0x2006, "six-per-em space", kSpace},
    {0x2007, "figure space", kSpace},
    {0x2008, "punctuation space", kSpace},
    {0x2009, "thin space", kSpace},
    {0x200A, "hair space", kSpace},
    {0x200B, "zero-width space", kNothing},
    {0x200C, "zero-width non-joiner", kNothing},
    {0x200D, "zero-width joiner", kNothing},
    {0x200E, "left-to-right mark", kNothing},
    {0x200F, "right-to-left mark", kNothing},
    {0x2010, "hyphen", kDash},
    {0x2011, "non-breaking hyphen", kDash},
    {0x2012, "figure dash", kDash},
    {0x2013, "en dash", "- or --"},
    {0x2014, "em dash", "- or --"},
    {0x2015, "horizontal bar", kDash},
    {0x2018, "left single quotation mark", kQuote},
    {0x2019, "right single quotation mark", kQuote},
    {0x201A, "low single quotation mark", kQuote},
    {0x201B, "reversed single quotation mark", kQuote},
    {0x201C, "left double quotation mark", kDoubleQuote},
    {0x201D, "right double quotation mark", kDoubleQuote},
    {0x201E, "low double quotation mark", kDoubleQuote},
    {0x201F, "reversed double quotation mark", kDoubleQuote},
    {0x2026, "ellipsis", "..."},
    {0x2028, "line separator", kSpace},
    {0x2029, "paragraph separator", kSpace},
    {0x202A, "left-to-right embedding", kNothing},
    {0x202B, "right-to-left embedding", kNothing},
    {0x202C, "pop directional formatting", kNothing},
    {0x202D, "left-to-right override", kNothing},
    {0x202E, "right-to-left override", kNothing},
    {0x202F, "narrow no-break space", kSpace},
    {0x2032, "prime", kQuote},
    {0x2033, "double prime", kDoubleQuote},
    {0x205F, "medium mathematical space", kSpace},
    {0x2060, "word joiner", kNothing},
    {0x2061, "function application", kNothing},
    {0x2062, "invisible times", kNothing},
    {0x2063, "invisible separator", kNothing},
    {0x2064, "invisible plus", kNothing},
    {0x2066, "left-to-right isolate", kNothing},
    {0x2067, "right-to-left isolate", kNothing},
    {0x2068, "first strong isolate", kNothing},
    {0x2069, "pop directional isolate", kNothing},
    {0x2212, "minus sign", kDash},
    {0x3000, "ideographic space", kSpace},
    {0xFE63, "small hyphen-minus", kDash},
    {0xFEFF, "byte order mark", kNothing},
    {0xFF0C, "fullwidth comma", ","},
    {0xFF0D, "fullwidth hyphen-minus", kDash},
    {0xFF1A, "fullwidth colon", ":"},
    {0xFF1D, "fullwidth equals sign", "="},
};

// The code of a character of two or three bytes; 0 for others, which are not in the table.
char32_t code_of(std::string_view character) {
  const auto bits = [character](std::size_t at, unsigned mask) {
    return static_cast<char32_t>(static_cast<unsigned char>(character[at]) & mask);
  };
  if (character.size() == 2) return bits(0, 0x1F) << 6 | bits(1, 0x3F);
  if (character.size() == 3) return bits(0, 0x0F) << 12 | bits(1, 0x3F) << 6 | bits(2, 0x3F);
  return 0;
}

const Pasted* find_pasted(std::string_view character) {
  const char32_t code = code_of(character);
  const auto* const found =
      std::find_if(std::begin(kPasted), std::end(kPasted), [code](const Pasted& row) { return row.code == code; });
  return found == std::end(kPasted) ? nullptr : found;
}

}  // namespace

std::string note_on_pasted(std::string_view text) {
  constexpr std::size_t kMost = 3;
  std::vector<const Pasted*> named;
  std::string out;
  while (!text.empty() && named.size() < kMost) {
    const std::string_view character = first_character(text);
    text.remove_prefix(character.size());
    const Pasted* const pasted = find_pasted(character);
    if (pasted == nullptr || std::find(named.begin(), named.end(), pasted) != named.end()) continue;
    named.push_back(pasted);
    char code[8];
    std::snprintf(code, sizeof code, "U+%04X", static_cast<unsigned>(pasted->code));
    out += "\nThe text has the character " + std::string(code) + " (" + std::string(pasted->name) +
           "), as documents have it. " +
           (pasted->instead.empty() ? "Remove it." : "Type " + std::string(pasted->instead) + " instead.");
  }
  return out;
}

bool begins_with_pasted(std::string_view text) {
  const Pasted* const pasted = text.empty() ? nullptr : find_pasted(first_character(text));
  return pasted != nullptr &&
         (pasted->instead.starts_with(kDash) || pasted->instead == kSpace || pasted->instead == kNothing);
}

}  // namespace distrun::launcher
