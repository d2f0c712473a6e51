// SPDX-License-Identifier: MIT
// The program as a function: finds the command and runs it.

#ifndef SKR_APP_PROGRAM_H
#define SKR_APP_PROGRAM_H

// Returns the exit code.
int skr_program_run(int argc, char **argv);

#endif
