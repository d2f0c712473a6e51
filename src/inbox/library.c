// SPDX-License-Identifier: MIT
// Loads a handler from a shared object, and refuses one that was built for
// another version of the handler ABI.

#include "base/error.h"
#include "base/text.h"
#include "inbox/consumer_internals.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum skr_code
check_version(const char *path, const uint32_t *abi, struct skr_error *error)
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

static enum skr_code
fail_function(const char *path, const char *function, struct skr_error *error)
{
    return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                    "%.200s has no function %.80s; is it static, or hidden "
                    "without SKR_API?",
                    path, function);
}

static enum skr_code
open_library(const char *path, const char *function, void **library,
             skr_handler_fn **handler, struct skr_error *error)
{
    void *opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (opened == NULL)
        return skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the library cannot be loaded: %s", dlerror());
    enum skr_code code =
        check_version(path, dlsym(opened, "skr_handler_abi"), error);
    void *found = code == SKR_OK ? dlsym(opened, function) : NULL;
    if (code == SKR_OK && found == NULL)
        code = fail_function(path, function, error);
    if (code != SKR_OK) {
        dlclose(opened);
        return code;
    }
    // ISO C knows no way from an object's pointer to a function's.
    memcpy(handler, &found, sizeof(found));
    *library = opened;
    return SKR_OK;
}

enum skr_code
skr_consumer_handle_library(struct skr_consumer *consumer,
                            const char *message_name, const char *path,
                            const char *function, bool wants_transaction,
                            struct skr_error *error)
{
    struct handler handler = {.wants_no_tx = !wants_transaction};
    enum skr_code code =
        open_library(path, function, &handler.library, &handler.run, error);
    if (code != SKR_OK)
        return code;
    code = skr_handlers_add(&consumer->handlers, message_name, &handler, error);
    if (code != SKR_OK)
        dlclose(handler.library);
    return code;
}

// Looks into a shared object without loading it: checking a configuration must
// not run code of a file that it names. Every offset and size comes from the
// file and is believed in no more than the file is long.

enum { LARGEST_TABLE = 64 * 1024 * 1024 };

struct object {
    int fd;
    uint64_t size;
    ElfW(Ehdr) head;
    ElfW(Shdr) * sections;
    ElfW(Sym) * symbols;
    size_t symbol_count;
    char *names;  // ends with a zero byte
    size_t names_size;
};

static bool
read_at(const struct object *object, uint64_t offset, void *bytes, size_t size)
{
    return offset <= object->size && size <= object->size - offset &&
           pread(object->fd, bytes, size, (off_t)offset) == (ssize_t)size;
}

// NULL: it does not lie in the file, or there is no memory. Has a zero byte
// more.
static void *
read_table(const struct object *object, uint64_t offset, uint64_t size)
{
    if (size > LARGEST_TABLE)
        return NULL;
    char *bytes = malloc((size_t)size + 1);
    if (bytes == NULL || !read_at(object, offset, bytes, (size_t)size)) {
        free(bytes);
        return NULL;
    }
    bytes[size] = '\0';
    return bytes;
}

// The head of the file that this code is in; the linker knows where it is.
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

// For this very kind of machine.
static bool
is_of_this_machine(const ElfW(Ehdr) * head)
{
    return memcmp(head->e_ident, __ehdr_start.e_ident, EI_VERSION) == 0 &&
           head->e_machine == __ehdr_start.e_machine;
}

static bool
read_symbols(struct object *object)
{
    const ElfW(Ehdr) *head = &object->head;
    object->sections = read_table(object, head->e_shoff,
                                  (uint64_t)head->e_shnum * sizeof(ElfW(Shdr)));
    if (object->sections == NULL || head->e_shentsize != sizeof(ElfW(Shdr)))
        return false;
    size_t at = 0;
    while (at < head->e_shnum && object->sections[at].sh_type != SHT_DYNSYM)
        at++;
    if (at == head->e_shnum || object->sections[at].sh_link >= head->e_shnum)
        return false;
    const ElfW(Shdr) *symbols = &object->sections[at];
    const ElfW(Shdr) *names = &object->sections[symbols->sh_link];
    object->symbols = read_table(object, symbols->sh_offset, symbols->sh_size);
    object->names = read_table(object, names->sh_offset, names->sh_size);
    object->symbol_count = (size_t)(symbols->sh_size / sizeof(ElfW(Sym)));
    object->names_size = (size_t)names->sh_size;
    return object->symbols != NULL && object->names != NULL;
}

static bool
open_object(struct object *object, const char *path)
{
    struct stat status;
    object->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (object->fd < 0 || fstat(object->fd, &status) != 0)
        return false;
    errno = ENOEXEC;
    object->size = S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
    return read_at(object, 0, &object->head, sizeof(object->head)) &&
           memcmp(object->head.e_ident, ELFMAG, SELFMAG) == 0 &&
           object->head.e_type == ET_DYN && is_of_this_machine(&object->head) &&
           read_symbols(object);
}

static const ElfW(Sym) *
    find_symbol(const struct object *object, const char *name)
{
    for (size_t i = 0; i < object->symbol_count; i++) {
        const ElfW(Sym) *symbol = &object->symbols[i];
        if (symbol->st_shndx != SHN_UNDEF &&
            symbol->st_name < object->names_size &&
            strcmp(object->names + symbol->st_name, name) == 0)
            return symbol;
    }
    return NULL;
}

// What a variable holds before anything has run.
static bool
read_variable(const struct object *object, const ElfW(Sym) * symbol,
              uint32_t *value)
{
    for (size_t i = 0; i < object->head.e_phnum; i++) {
        ElfW(Phdr) part;
        if (!read_at(object, object->head.e_phoff + i * sizeof(part), &part,
                     sizeof(part)))
            return false;
        if (part.p_type == PT_LOAD && symbol->st_value >= part.p_vaddr &&
            part.p_filesz >= sizeof(*value) &&
            symbol->st_value - part.p_vaddr <= part.p_filesz - sizeof(*value))
            return read_at(object,
                           part.p_offset + (symbol->st_value - part.p_vaddr),
                           value, sizeof(*value));
    }
    return false;
}

static enum skr_code
check_object(const struct object *object, const char *path,
             const char *function, struct skr_error *error)
{
    const ElfW(Sym) *abi = find_symbol(object, "skr_handler_abi");
    uint32_t version = 0;
    bool has_version = abi != NULL && read_variable(object, abi, &version);
    enum skr_code code =
        check_version(path, has_version ? &version : NULL, error);
    if (code == SKR_OK && find_symbol(object, function) == NULL)
        code = fail_function(path, function, error);
    return code;
}

enum skr_code
skr_library_look(const char *path, const char *function,
                 struct skr_error *error)
{
    struct object object = {.fd = -1};
    enum skr_code code = SKR_OK;
    if (!open_object(&object, path))
        code = skr_fail(error, SKR_INVALID, SKR_GIVE_UP,
                        "the library cannot be loaded: %.200s: %s", path,
                        errno == ENOEXEC
                            ? "it is no shared object for this machine"
                            : strerror(errno));
    else
        code = check_object(&object, path, function, error);
    free(object.sections);
    free(object.symbols);
    free(object.names);
    if (object.fd >= 0)
        close(object.fd);
    return code;
}
