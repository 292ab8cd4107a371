// Prints docs/reference/settings.md as the table in runtime/base/settings.def generates it.
#include <iostream>

#include "runtime/base/settings.h"

int main() { std::cout << distrun::settings_page(); }
