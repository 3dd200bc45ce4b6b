/* Says what is in picture files: of an FBL all there is, of others what decode would find. */
#include "dataplane/cli/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec/decode.h"
#include "dataplane/cli/cli.h"

enum { OPTION_JSON = 256, OPTION_MODES, MODES = FBY_FBL_MODE_RANS + 1 };

typedef struct inspect_arguments {
    char **files;
    uint32_t count;
    const char *modes;
    bool json;
} inspect_arguments;

static const struct argp_option options[] = {
    {"modes", OPTION_MODES, "OUT.png", 0, "draw how the tiles of one FBL file are coded", 0},
    {"json", OPTION_JSON, NULL, 0, "print a JSON object for each file", 0},
    {0}};

static error_t option_take(int key, char *value, struct argp_state *state)
{
    inspect_arguments *arguments = state->input;
    switch (key) {
    case OPTION_MODES:
        arguments->modes = value;
        return 0;
    case OPTION_JSON:
        arguments->json = true;
        return 0;
    case ARGP_KEY_ARG:
        arguments->files[arguments->count++] = value;
        return 0;
    case ARGP_KEY_END:
        if (!arguments->count) argp_error(state, "a FILE is expected");
        if (arguments->modes && arguments->count > 1) argp_error(state, "--modes takes one FILE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* A file as json: what is printed as text is taken from there. NULL: `error` says why. */
static json_t *picture_json(const char *path, const fby_picture_info *info, size_t length)
{
    return json_pack("{s:s%,s:s,s:I,s:i,s:i,s:i,s:i,s:i,s:i}", "path", path, strlen(path), "format",
                     fby_format_name(info->format), "bytes", (json_int_t)length, "width", (int)info->w,
                     "height", (int)info->h, "channels", (int)info->channels, "bits", (int)info->bits,
                     "frames", (int)info->frames, "orientation", (int)info->orientation);
}

static const char *const mode_names[MODES] = {"raw", "const", "palette", "pack", "rans"};

/* The level isn't in the file: entropy-coded tiles are small's, packed ones without any such fast's. */
static const char *level_of(const uint64_t counts[MODES])
{
    if (counts[FBY_FBL_MODE_RANS]) return "small";
    return counts[FBY_FBL_MODE_PACK] ? "fast" : "either";
}

static int modes_read(const fby_fbl_decoder *decoder, const fby_fbl_info *info, json_t *out,
                      const char *drawing, fby_error *error)
{
    const uint32_t tiles = info->tiles_across * info->tiles_down;
    uint64_t counts[MODES] = {0}, bytes[MODES] = {0};
    uint8_t *modes = malloc(tiles);
    int status = modes ? 0 : fby_fail(error, FBY_ENOMEM, "no memory for %u tiles", tiles);

    for (uint32_t i = 0; i < tiles && !status; i++) {
        fby_fbl_tile tile = FBY_FBL_TILE_INIT;
        status = fby_fbl_tile_read(decoder, i, &tile, error);
        if (status) break;
        modes[i] = (uint8_t)tile.mode;
        counts[tile.mode]++;
        bytes[tile.mode] += tile.bytes;
    }
    if (!status && drawing) status = fby_modes_draw(drawing, info, modes, error);
    free(modes);
    if (status) return status;

    json_t *list = json_object();
    for (int mode = 0; mode < MODES; mode++) {
        if (counts[mode])
            json_object_set_new(
                list, mode_names[mode],
                json_pack("{s:I,s:I}", "tiles", (json_int_t)counts[mode], "bytes", (json_int_t)bytes[mode]));
    }
    json_object_set_new(out, "modes", list);
    json_object_set_new(out, "level", json_string(level_of(counts)));
    return 0;
}

static int metadata_read(const fby_fbl_decoder *decoder, json_t *out, fby_error *error)
{
    json_t *list = json_array();
    fby_fbl_chunk chunk;
    int status = 0;

    for (uint32_t i = 0; !(status = fby_fbl_metadata_at(decoder, i, &chunk, error)) && chunk.data; i++) {
        char type[sizeof chunk.type + 1] = {0};
        for (size_t c = 0; c < sizeof chunk.type; c++)
            type[c] = chunk.type[c] > ' ' && chunk.type[c] < 127 ? chunk.type[c] : c == 3 ? 0 : '?';
        json_array_append_new(list, json_pack("{s:s,s:I}", "type", type, "bytes", (json_int_t)chunk.length));
    }
    json_object_set_new(out, "metadata", list);
    return status;
}

static int fbl_read(const uint8_t *bytes, size_t length, const inspect_arguments *arguments, json_t *out,
                    fby_error *error)
{
    fby_fbl_decoder *decoder = NULL;
    fby_fbl_open_options open_options = FBY_FBL_OPEN_OPTIONS_INIT;
    fby_fbl_info info = FBY_FBL_INFO_INIT;

    if (fby_fbl_decoder_create(&decoder)) return fby_fail(error, FBY_ENOMEM, "no memory for a decoder");
    open_options.max_pixels = UINT64_MAX;
    int status = fby_fbl_open(decoder, bytes, length, &open_options, &info, error);
    if (!status) {
        json_object_set_new(out, "tile", json_pack("[i,i]", (int)info.tile_width, (int)info.tile_height));
        json_object_set_new(out, "tiles", json_pack("[i,i]", (int)info.tiles_across, (int)info.tiles_down));
        json_object_set_new(out, "parts",
                            json_pack("{s:i,s:I,s:I,s:I,s:i}", "header", (int)FBY_FBL_HEADER_BYTES, "index",
                                      (json_int_t)(info.prefix_bytes - FBY_FBL_HEADER_BYTES), "tiles",
                                      (json_int_t)(info.metadata_offset - info.prefix_bytes), "metadata",
                                      (json_int_t)info.metadata_bytes, "slack", (int)FBY_FBL_SLACK_BYTES));
        status = modes_read(decoder, &info, out, arguments->modes, error);
    }
    if (!status) status = metadata_read(decoder, out, error);
    fby_fbl_decoder_destroy(&decoder);
    return status;
}

static int picture_read(const uint8_t *bytes, size_t length, const char *path, json_t **out, fby_error *error)
{
    /* Sizes are told, whatever they are. */
    const fby_decode_options all = {.max_pixels = UINT64_MAX};
    fby_decoder *decoder = NULL;
    fby_picture_info info;

    if (fby_decoder_create(&decoder)) return fby_fail(error, FBY_ENOMEM, "no memory for a decoder");
    fby_reason reason = fby_decode_open(decoder, bytes, length, &all, &info);
    if (reason)
        fby_fail(error, FBY_ESAMPLE, "%s: %s: %s", path, fby_reason_name(reason), fby_decode_text(decoder));
    else
        *out = picture_json(path, &info, length);
    fby_decoder_destroy(&decoder);
    return reason;
}

static json_int_t number(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

static json_int_t number_at(const json_t *object, const char *name, size_t index)
{
    return json_integer_value(json_array_get(json_object_get(object, name), index));
}

static void fbl_print(const json_t *file)
{
    const json_t *parts = json_object_get(file, "parts");
    char size[32];
    const char *name;
    json_t *value;
    size_t index;

    printf("  tiles     %lld x %lld, each of %lld x %lld\n", (long long)number_at(file, "tiles", 0),
           (long long)number_at(file, "tiles", 1), (long long)number_at(file, "tile", 0),
           (long long)number_at(file, "tile", 1));
    printf("  level     %s\n", json_string_value(json_object_get(file, "level")));
    json_object_foreach(json_object_get(file, "modes"), name, value)
    {
        printf("  %-9s %lld tiles, %s\n", name, (long long)number(value, "tiles"),
               fby_size_text(size, (double)number(value, "bytes")));
    }
    printf("  parts    ");
    json_object_foreach((json_t *)(uintptr_t)parts, name, value)
    {
        printf(" %s %s%s", name, fby_size_text(size, (double)json_integer_value(value)),
               strcmp(name, "slack") ? "," : "\n");
    }
    json_array_foreach(json_object_get(file, "metadata"), index, value)
    {
        printf("  metadata  %s, %s\n", json_string_value(json_object_get(value, "type")),
               fby_size_text(size, (double)number(value, "bytes")));
    }
}

static void file_print(const json_t *file)
{
    char size[32];
    json_int_t channels = number(file, "channels"), w = number(file, "width"), h = number(file, "height"),
               bits = number(file, "bits"), bytes = number(file, "bytes");

    printf("%s: %s, %lld x %lld, %lld channel%s of %lld bit%s, %s, %.2f bits a pixel\n",
           json_string_value(json_object_get(file, "path")),
           json_string_value(json_object_get(file, "format")), (long long)w, (long long)h,
           (long long)channels, channels == 1 ? "" : "s", (long long)bits, bits == 1 ? "" : "s",
           fby_size_text(size, (double)bytes), 8.0 * (double)bytes / ((double)w * (double)h));
    if (number(file, "frames") > 1) puts("  an animation, or several pages: decode takes the first");
    if (number(file, "orientation") != 1)
        printf("  orientation %lld: decode turns it where `exif` is true, a TIFF always\n",
               (long long)number(file, "orientation"));
    if (json_object_get(file, "parts")) fbl_print(file);
}

static int inspect(const char *path, const inspect_arguments *arguments)
{
    fby_error error = FBY_ERROR_INIT;
    json_t *file = NULL;
    size_t length = 0;
    int from = open(path, O_RDONLY | O_CLOEXEC);
    uint8_t *bytes = from < 0 ? NULL : fby_file_read(from, &length);
    int status = bytes ? 0 : fby_fail(&error, FBY_EIO, "can't read %s: %s", path, strerror(errno));

    if (from >= 0) close(from);
    if (!status) status = picture_read(bytes, length, path, &file, &error);
    if (!status && fby_fbl_is(bytes, length))
        status = fbl_read(bytes, length, arguments, file, &error);
    else if (!status && arguments->modes)
        status = fby_fail(&error, FBY_EINVAL, "%s is no FBL file: it has no tiles to draw", path);
    if (!status && arguments->json) {
        json_dumpf(file, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    if (!status && !arguments->json) file_print(file);
    json_decref(file);
    free(bytes);
    return status ? fby_complain(&error) : 0;
}

int fby_command_inspect(int count, char **values)
{
    static const struct argp argp = {
        options,
        option_take,
        "FILE...",
        "Say what is in picture files: of FBL how its tiles are coded, what its parts "
        "take, its metadata.",
        NULL,
        NULL,
        NULL};
    inspect_arguments arguments = {.files = calloc((size_t)count, sizeof(char *))};
    if (!arguments.files) return FBY_EXIT_FAILED;
    int status = FBY_EXIT_USAGE;
    if (!fby_arguments_parse(&argp, "inspect", count, values, &arguments)) {
        status = 0;
        for (uint32_t i = 0; i < arguments.count; i++) {
            int failed = inspect(arguments.files[i], &arguments);
            if (failed) status = failed;
        }
    }
    free(arguments.files);
    return status;
}
