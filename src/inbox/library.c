// SPDX-License-Identifier: MIT
// Loads a handler from a shared object, and refuses one that was built for
// another version of the handler ABI.

#include "inbox/library.h"

#include "base/error.h"
#include "inbox/inside.h"

#include <dlfcn.h>
#include <string.h>

enum skr_code
skr_library_check_version(const char *path, const uint32_t *abi,
                          struct skr_error *error)
{
    if (abi == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%.200s is no library of handlers: it has no "
                        "SKR_HANDLER_LIBRARY; write it once, outside of any "
                        "function",
                        path);
    if (*abi != SKR_HANDLER_ABI)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "%.200s was compiled for version %u of handlers, and "
                        "this is version %u; compile it again with the headers "
                        "of Skirnir %s",
                        path, (unsigned)*abi, (unsigned)SKR_HANDLER_ABI,
                        SKR_VERSION);
    return SKR_OK;
}

enum skr_code
skr_library_fail_function(const char *path, const char *function,
                          struct skr_error *error)
{
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%.200s has no function %.80s; is it static, or hidden "
                    "without SKR_API?",
                    path, function);
}

enum skr_code
skr_library_open(const char *path, const char *function, void **library,
                 skr_handler_fn **handler, struct skr_error *error)
{
    void *opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (opened == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the library cannot be loaded: %s", dlerror());
    enum skr_code code = skr_library_check_version(
        path, dlsym(opened, "skr_handler_abi"), error);
    void *found = code == SKR_OK ? dlsym(opened, function) : NULL;
    if (code == SKR_OK && found == NULL)
        code = skr_library_fail_function(path, function, error);
    if (code != SKR_OK) {
        dlclose(opened);
        return code;
    }
    // ISO C knows no way from an object's pointer to a function's.
    memcpy(handler, &found, sizeof(found));
    *library = opened;
    return SKR_OK;
}

void
skr_library_close(void *library)
{
    if (library != NULL)
        dlclose(library);
}

enum skr_code
skr_consumer_handle_library(struct skr_consumer *consumer,
                            const char *message_name, const char *path,
                            const char *function, bool wants_transaction,
                            struct skr_error *error)
{
    struct handler handler = {.is_outside = !wants_transaction};
    enum skr_code code =
        skr_library_open(path, function, &handler.library, &handler.run, error);
    if (code == SKR_OK)
        code = skr_handlers_add(&consumer->handlers, message_name, &handler,
                                error);
    if (code != SKR_OK)
        skr_library_close(handler.library);
    return code;
}
