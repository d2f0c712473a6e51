// SPDX-License-Identifier: MIT
// The entry point alone, so that tests can link all the rest and call
// skr_program_run().

#include "app/program.h"

int
main(int argc, char **argv)
{
    return skr_program_run(argc, argv);
}
