/* YAML text to a small tree of nodes that know their line.
 *
 * Only what a spec needs: one document of plain maps, lists and scalars. Anchors, aliases, tags, keys given
 * twice and several documents are refused; size, depth and number of nodes are bounded. */
#ifndef FBY_DATAPLANE_YAML_H
#define FBY_DATAPLANE_YAML_H

#include <forebay/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FBY_YAML_DEPTH = 16, FBY_YAML_NODES = 4096 };

typedef struct fby_yaml_node fby_yaml_node;
struct fby_yaml_node {
    enum { FBY_YAML_SCALAR, FBY_YAML_LIST, FBY_YAML_MAP } kind;
    bool plain;                 /* a scalar without quotes */
    uint32_t line;              /* from 1; of the key where there is one */
    const char *key;            /* of a map's entry; else NULL */
    const char *text;           /* of a scalar: UTF-8 without NUL, "" where nothing stands */
    const fby_yaml_node *first; /* of a list or map: its entries … */
    const fby_yaml_node *next;  /* … in the order of the text */
    uint32_t count;
};

typedef struct fby_yaml fby_yaml;

/* Where messages say that something stands. */
typedef struct fby_spec_place {
    const char *name;
    fby_error *error;
} fby_spec_place;

/* FBY_EINVAL with "NAME:LINE: KEY: …", as one line of UTF-8; `key` may be NULL. */
__attribute__((format(printf, 4, 5))) int fby_spec_refuse(const fby_spec_place *place, uint32_t line,
                                                          const char *key, const char *format, ...);
/* `text` as a message may quote it: one line, cut where long. `room` is at least 64. */
const char *fby_spec_quote(const char *text, char *quoted, size_t room);

int fby_yaml_parse(fby_yaml **out, const fby_spec_place *place, const char *text, size_t length);
void fby_yaml_free(fby_yaml **yaml);
const fby_yaml_node *fby_yaml_root(const fby_yaml *yaml);

/* Nothing stands there: an empty or `null` plain scalar. */
bool fby_yaml_is_null(const fby_yaml_node *node);
/* "a list", "a map", "nothing", or the scalar in quotes; for messages. */
const char *fby_yaml_describe(const fby_yaml_node *node, char *text, size_t room);

#endif
