/* What `forebay convert` is made of: the files of a folder, and what becomes of each. */
#ifndef FBY_DATAPLANE_CLI_CONVERT_H
#define FBY_DATAPLANE_CLI_CONVERT_H

#include <forebay/error.h>
#include <stdbool.h>
#include <stdint.h>

#include "codec/convert/convert.h"

typedef enum fby_file_state {
    FBY_FILE_WAITS,
    FBY_FILE_CONVERTED,
    FBY_FILE_THERE,  /* converted by an earlier run */
    FBY_FILE_COPIED, /* it can't be taken: `reason` and `text` */
    FBY_FILE_FAILED  /* it couldn't be read or written: `text` */
} fby_file_state;

typedef struct fby_convert_file {
    char *from, *to; /* below the two folders */
    char *copy;      /* where it goes when it can't be taken */
    uint64_t bytes;  /* of the source */
    fby_file_state state;
    bool fresh;     /* made by this run */
    uint64_t after; /* bytes of what is there now */
    uint32_t frames;
    fby_reason reason;
    char *text; /* NULL: none */
} fby_convert_file;

typedef struct fby_convert_list {
    fby_convert_file *files;
    uint64_t count, room;
    uint64_t bytes;
} fby_convert_list;

/* All files below a folder, links followed, in the order of their paths, each with its name below the other
 * folder. A name that two sources would get keeps their endings. */
int fby_convert_list_make(fby_convert_list *list, const char *folder, fby_error *error);
void fby_convert_list_free(fby_convert_list *list);

/* Does what is to be done to a file; `from` and `to` are the folders. Nothing half is ever at a final name.
 */
typedef struct fby_convert_place {
    int from, to;
} fby_convert_place;

void fby_convert_file_do(fby_converter *converter, const fby_convert_place *place,
                         const fby_convert_options *options, fby_convert_file *file);

#endif
