#include "dataplane/spec/yaml.h"

#include <libfyaml.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* A node while it is built: the public part first. */
typedef struct build {
    fby_yaml_node node;
    fby_yaml_node *last;
} build;

struct fby_yaml {
    build nodes[FBY_YAML_NODES];
    uint32_t count;
    char *texts[FBY_YAML_NODES];
    uint32_t text_count;
    const fby_yaml_node *root;
    const char *source; /* the text; borrowed while it is parsed */
    size_t source_length;
};

int fby_spec_refuse(const fby_spec_place *place, uint32_t line, const char *key, const char *format, ...)
{
    char text[FBY_ERROR_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    int status = fby_fail(place->error, FBY_EINVAL, "%s:%u: %s%s%s", place->name, line, key ? key : "",
                          key ? ": " : "", text);
    if (place->error)
        for (char *c = place->error->text; *c; c++)
            if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    return status;
}

const char *fby_spec_quote(const char *text, char *quoted, size_t room)
{
    size_t length = strlen(text), most = room - 6;
    if (length <= most) {
        snprintf(quoted, room, "\"%s\"", text);
        return quoted;
    }
    while (most && ((unsigned char)text[most] & 0xC0) == 0x80) most--;
    snprintf(quoted, room, "\"%.*s…\"", (int)most, text);
    return quoted;
}

static bool utf8_valid(const unsigned char *s, size_t length, size_t *where)
{
    size_t i = 0;
    while (i < length) {
        unsigned char c = s[i];
        size_t more = c < 0x80                ? 0
                      : c >= 0xC2 && c < 0xE0 ? 1
                      : c >= 0xE0 && c < 0xF0 ? 2
                      : c >= 0xF0 && c < 0xF5 ? 3
                                              : 9;
        *where = i;
        if (c == 0 || more == 9 || length - i <= more) return false;
        for (size_t k = 1; k <= more; k++)
            if ((s[i + k] & 0xC0) != 0x80) return false;
        if ((c == 0xE0 && s[i + 1] < 0xA0) || (c == 0xED && s[i + 1] > 0x9F) ||
            (c == 0xF0 && s[i + 1] < 0x90) || (c == 0xF4 && s[i + 1] > 0x8F))
            return false;
        i += more + 1;
    }
    return true;
}

/* Where the text between single quotes stands in the source; NULL where it isn't on one line. libfyaml would
 * give the text itself, but leaks memory where there are many '' in it. */
static const char *single_quoted(const fby_yaml *yaml, struct fy_token *token, size_t *length)
{
    size_t from = fy_token_start_mark(token)->input_pos, to = fy_token_end_mark(token)->input_pos;
    if (from < 1 || to < from || to >= yaml->source_length) return NULL;
    const char *text = yaml->source + from;
    *length = to - from;
    if (text[-1] != '\'' || text[*length] != '\'' || memchr(text, '\n', *length)) return NULL;
    return text;
}

/* A copy of a scalar's text, owned by the tree. */
static int keep_text(fby_yaml *yaml, const fby_spec_place *place, uint32_t line, struct fy_token *token,
                     const char **out)
{
    size_t length = 0, kept = 0;
    bool single = token && fy_token_scalar_style(token) == FYSS_SINGLE_QUOTED;
    const char *text = single ? single_quoted(yaml, token, &length) : NULL;
    if (single && !text)
        return fby_spec_refuse(place, line, NULL,
                               "a text in '…' over several lines; expected it on one line");
    if (token && !single) text = fy_token_get_text(token, &length);
    if (!text) length = 0;
    char *copy = malloc(length + 1);
    if (!copy) return fby_fail(place->error, FBY_ENOMEM, "%s: no memory to parse it", place->name);
    yaml->texts[yaml->text_count++] = copy;
    *out = copy;
    for (size_t i = 0; i < length; i++) {
        if (!text[i])
            return fby_spec_refuse(place, line, NULL, "a text holds a NUL character; expected none");
        copy[kept++] = text[i];
        if (single && text[i] == '\'') i++;
    }
    copy[kept] = 0;
    return FBY_OK;
}

/* What the parser is inside of, outermost first. */
typedef struct nesting {
    build *open[FBY_YAML_DEPTH];
    uint32_t depth;
    const char *key; /* read, its value not yet */
    uint32_t key_line, line;
    bool document, done;
} nesting;

/* Adds a value (or remembers a key) where the parser stands. */
static int add(fby_yaml *yaml, const fby_spec_place *place, nesting *at, struct fy_event *event,
               build **added)
{
    build *parent = at->depth ? at->open[at->depth - 1] : NULL;
    bool scalar = event->type == FYET_SCALAR;
    *added = NULL;
    if (parent && parent->node.kind == FBY_YAML_MAP && !at->key) {
        if (!scalar)
            return fby_spec_refuse(place, at->line, NULL, "a key is a list or a map; expected a name");
        if (yaml->text_count == FBY_YAML_NODES)
            return fby_spec_refuse(place, at->line, NULL, "too many values; expected at most %d",
                                   FBY_YAML_NODES);
        const char *key;
        int status = keep_text(yaml, place, at->line, event->scalar.value, &key);
        if (status) return status;
        for (const fby_yaml_node *entry = parent->node.first; entry; entry = entry->next)
            if (!strcmp(entry->key, key))
                return fby_spec_refuse(place, at->line, key,
                                       "given twice, first in line %u; expected it once", entry->line);
        at->key = key;
        at->key_line = at->line;
        return FBY_OK;
    }
    if (yaml->count == FBY_YAML_NODES || yaml->text_count == FBY_YAML_NODES)
        return fby_spec_refuse(place, at->line, NULL, "too many values; expected at most %d", FBY_YAML_NODES);

    build *new = &yaml->nodes[yaml->count++];
    *new = (build){.node = {.line = at->key ? at->key_line : at->line, .key = at->key, .text = ""}};
    at->key = NULL;
    if (scalar) {
        struct fy_token *token = event->scalar.value;
        new->node.kind = FBY_YAML_SCALAR;
        new->node.plain = !token || fy_token_scalar_style(token) == FYSS_PLAIN;
        int status = keep_text(yaml, place, new->node.line, token, &new->node.text);
        if (status) return status;
    } else {
        new->node.kind = event->type == FYET_SEQUENCE_START ? FBY_YAML_LIST : FBY_YAML_MAP;
    }
    if (!parent) {
        yaml->root = &new->node;
    } else {
        if (parent->last)
            parent->last->next = &new->node;
        else
            parent->node.first = &new->node;
        parent->last = &new->node;
        parent->node.count++;
    }
    *added = new;
    return FBY_OK;
}

static int take_event(fby_yaml *yaml, const fby_spec_place *place, nesting *at, struct fy_event *event)
{
    const struct fy_mark *mark = fy_event_start_mark(event);
    if (mark) at->line = (uint32_t)mark->line + 1;
    struct fy_token *anchor = NULL, *tag = NULL;
    switch (event->type) {
    case FYET_DOCUMENT_START:
        if (at->document)
            return fby_spec_refuse(place, at->line, NULL,
                                   "a second document begins; expected one spec per file");
        at->document = true;
        return FBY_OK;
    case FYET_ALIAS:
        return fby_spec_refuse(place, at->line, NULL, "an alias (*name); expected the value itself");
    case FYET_SCALAR:
        anchor = event->scalar.anchor;
        tag = event->scalar.tag;
        break;
    case FYET_SEQUENCE_START:
        anchor = event->sequence_start.anchor;
        tag = event->sequence_start.tag;
        break;
    case FYET_MAPPING_START:
        anchor = event->mapping_start.anchor;
        tag = event->mapping_start.tag;
        break;
    case FYET_SEQUENCE_END:
    case FYET_MAPPING_END:
        at->depth--;
        return FBY_OK;
    default:
        return FBY_OK;
    }
    if (anchor) return fby_spec_refuse(place, at->line, NULL, "an anchor (&name); expected plain values");
    if (tag) return fby_spec_refuse(place, at->line, NULL, "a tag (!name); expected plain values");
    build *added;
    int status = add(yaml, place, at, event, &added);
    if (status || event->type == FYET_SCALAR) return status;
    if (at->depth == FBY_YAML_DEPTH)
        return fby_spec_refuse(place, at->line, NULL, "nested too deeply; expected at most %d levels",
                               FBY_YAML_DEPTH);
    at->open[at->depth++] = added;
    return FBY_OK;
}

/* Whether line `line`, counted from 1, has a tab in its indentation. */
static bool tab_indents(const fby_yaml *yaml, uint32_t line)
{
    const char *at = yaml->source, *end = at + yaml->source_length;
    for (; line > 1 && at; line--) {
        at = memchr(at, '\n', (size_t)(end - at));
        if (at) at++;
    }
    while (at && at < end && *at == ' ') at++;
    return at && at < end && *at == '\t';
}

static int refuse_syntax(const fby_yaml *yaml, const fby_spec_place *place, uint32_t line, const char *why)
{
    /* libfyaml takes a line that begins with a tab for more of the one before, and complains about that. */
    for (uint32_t i = line; i <= line + 1; i++)
        if (tab_indents(yaml, i))
            return fby_spec_refuse(place, i, NULL,
                                   "not valid YAML: a tab in the indentation; expected spaces");
    return fby_spec_refuse(place, line, NULL, "not valid YAML%s%s; expected key: value lines",
                           *why ? ": " : "", why);
}

static int parse_events(fby_yaml *yaml, const fby_spec_place *place, struct fy_parser *parser,
                        struct fy_diag *diag)
{
    nesting at = {.line = 1};
    struct fy_event *event;
    int status = FBY_OK;
    while (!status && (event = fy_parser_parse(parser))) {
        status = take_event(yaml, place, &at, event);
        at.done = event->type == FYET_STREAM_END;
        fy_parser_event_free(parser, event);
    }
    if (status) return status;
    if (at.done && yaml->root) return FBY_OK;
    if (at.done)
        return fby_spec_refuse(place, 1, NULL, "it is empty; expected a map with dataset and pipeline");
    void *previous = NULL;
    struct fy_diag_error *said = fy_diag_errors_iterate(diag, &previous);
    return refuse_syntax(yaml, place, said && said->line > 0 ? (uint32_t)said->line : at.line,
                         said ? said->msg : "");
}

int fby_yaml_parse(fby_yaml **out, const fby_spec_place *place, const char *text, size_t length)
{
    *out = NULL;
    size_t where = 0;
    if (!utf8_valid((const unsigned char *)text, length, &where)) {
        uint32_t line = 1;
        for (size_t i = 0; i < where; i++) line += text[i] == '\n';
        return fby_spec_refuse(place, line, NULL, "byte %zu is not text in UTF-8; expected YAML in UTF-8",
                               where);
    }
    int status = FBY_ENOMEM;
    fby_yaml *yaml = calloc(1, sizeof *yaml);
    if (yaml) {
        yaml->source = text;
        yaml->source_length = length;
    }
    struct fy_diag_cfg diag_options;
    fy_diag_cfg_default(&diag_options);
    diag_options.fp = NULL;
    struct fy_diag *diag = fy_diag_create(&diag_options);
    struct fy_parser *parser = NULL;
    if (diag) {
        fy_diag_set_collect_errors(diag, true);
        struct fy_parse_cfg options = {.flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_DEFAULT_VERSION_1_2 |
                                                FYPCF_JSON_NONE,
                                       .diag = diag};
        parser = fy_parser_create(&options);
    }
    if (yaml && parser && !fy_parser_set_string(parser, text, length))
        status = parse_events(yaml, place, parser, diag);
    else
        fby_fail(place->error, FBY_ENOMEM, "%s: no memory to parse it", place->name);
    if (parser) fy_parser_destroy(parser);
    if (diag) fy_diag_destroy(diag);
    if (status) fby_yaml_free(&yaml);
    *out = yaml;
    return status;
}

void fby_yaml_free(fby_yaml **yaml)
{
    if (!*yaml) return;
    for (uint32_t i = 0; i < (*yaml)->text_count; i++) free((*yaml)->texts[i]);
    free(*yaml);
    *yaml = NULL;
}

const fby_yaml_node *fby_yaml_root(const fby_yaml *yaml)
{
    return yaml->root;
}

bool fby_yaml_is_null(const fby_yaml_node *node)
{
    return node->kind == FBY_YAML_SCALAR && node->plain &&
           (!*node->text || !strcmp(node->text, "null") || !strcmp(node->text, "~"));
}

const char *fby_yaml_describe(const fby_yaml_node *node, char *text, size_t room)
{
    if (node->kind == FBY_YAML_LIST) return "a list";
    if (node->kind == FBY_YAML_MAP) return "a map";
    if (fby_yaml_is_null(node)) return "nothing";
    return fby_spec_quote(node->text, text, room);
}
