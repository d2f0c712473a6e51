// SPDX-License-Identifier: MIT
#include "app/program.h"

int
main(int argc, char **argv)
{
    return skr_program_run(argc, argv);
}
