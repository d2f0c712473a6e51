// SPDX-License-Identifier: MIT
// The entry point alone: everything else is in a library that other executables
// can link.

#include "app/program.h"

int
main(int argc, char **argv)
{
    return skr_program_run(argc, argv);
}
