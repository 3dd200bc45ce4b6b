/* Any text is either refused with a message or becomes a spec that prints and parses back to the same text.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane/spec/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fby_error error = FBY_ERROR_INIT;
    fby_spec *spec, *again;
    /* A copy of exactly this size, so that reading past its end is seen. */
    char *text = malloc(size ? size : 1);
    memcpy(text, data, size);
    if (fby_spec_parse(&spec, "spec", text, size, "/base", &error)) {
        if (!error.text[0] || spec) abort();
        free(text);
        return 0;
    }
    char *printed = fby_spec_print(spec);
    if (!printed || fby_spec_parse(&again, "again", printed, strlen(printed), "/", &error)) abort();
    char *reprinted = fby_spec_print(again);
    if (!reprinted || strcmp(printed, reprinted)) abort();
    free(reprinted);
    free(printed);
    free(text);
    fby_spec_free(&again);
    fby_spec_free(&spec);
    return 0;
}
