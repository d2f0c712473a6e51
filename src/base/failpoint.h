// SPDX-License-Identifier: MIT
// Named places where a test can hold the process, to kill it right there.
//
// SKIRNIR_FAILPOINT="relay.published:3" holds the process the third time it
// comes by: it writes its pid into the file SKIRNIR_FAILPOINT_FILE and sleeps
// until it is killed. Compiled out unless the build asks for it.

#ifndef SKR_BASE_FAILPOINT_H
#define SKR_BASE_FAILPOINT_H

#ifdef SKR_FAILPOINTS
void skr_failpoint(const char *name);
#else
#define skr_failpoint(name) ((void)0)
#endif

#endif
