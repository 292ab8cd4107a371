// Characters that word processors and web pages put in place of ASCII: dashes, quotes, blanks. They look right on a
// screen, so errors must name them. Pure.
#pragma once

#include <string>
#include <string_view>

namespace distrun::launcher {

// Sentences that name such characters of the text, each character once and at most three, with what to type instead.
// Each begins with a line end. Empty if the text has none.
std::string note_on_pasted(std::string_view text);

// True if the text begins with a dash that is not '-', or with such a blank, as options of a copied command line do.
bool begins_with_pasted(std::string_view text);

}  // namespace distrun::launcher
