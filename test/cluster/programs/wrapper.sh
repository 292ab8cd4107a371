#!/bin/sh
# A script of the user between distrun and the program.
"$@"
