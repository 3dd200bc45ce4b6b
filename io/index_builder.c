#include "io/index_builder.h"

#include "io/hash.h"
#include "io/message.h"

#include <string.h>
#include <sys/mman.h>

static uint64_t string_add(fby_index_builder *builder, const char *text)
{
    uint64_t offset = builder->strings_used;
    size_t bytes = strlen(text) + 1;

    assert(bytes <= builder->header->string_bytes - offset);
    memcpy(builder->strings + offset, text, bytes);
    builder->strings_used += bytes;
    return offset;
}

int fby_index_builder_begin(fby_index_builder *builder, fby_dataset_kind kind, const char *root,
                            const fby_index_counts *counts, fby_error *error)
{
    uint64_t string_bytes = counts->string_bytes + strlen(root) + 1;
    uint64_t bytes = fby_index_bytes(counts->samples, counts->folders, counts->classes, string_bytes);
    if (!bytes) {
        fby_path_shown shown = fby_path_show(root, "");
        return fby_fail(error, FBY_EINVAL, "%s: more files or classes than an index can hold", shown.text);
    }

    fby_index_header *header = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (header == MAP_FAILED) {
        fby_path_shown shown = fby_path_show(root, "");
        return fby_fail(error, FBY_ENOMEM, "%s: no memory for an index of %lu files (%lu MiB)", shown.text,
                        (unsigned long)counts->samples, (unsigned long)(bytes >> 20) + 1);
    }

    *header = (fby_index_header){
        .magic = INDEX_MAGIC,
        .version = INDEX_VERSION,
        .header_bytes = sizeof *header,
        .bytes = bytes,
        .kind = kind,
        .classes = (uint32_t)counts->classes,
        .samples = counts->samples,
        .folders = counts->folders,
        .string_bytes = string_bytes,
    };
    *builder = (fby_index_builder){.header = header, .bytes = bytes};
    builder->samples = (fby_index_sample *)(header + 1);
    builder->folders = (fby_index_folder *)(builder->samples + counts->samples);
    builder->classes = (uint64_t *)(builder->folders + counts->folders);
    builder->strings = (char *)(builder->classes + counts->classes);
    header->root = string_add(builder, root);
    return FBY_OK;
}

void fby_index_builder_class(fby_index_builder *builder, const char *name)
{
    assert(builder->classes_added < builder->header->classes);
    builder->classes[builder->classes_added++] = string_add(builder, name);
}

void fby_index_builder_folder(fby_index_builder *builder, const char *path, const fby_index_stamp *stamp,
                              uint64_t listing)
{
    assert(builder->folders_added < builder->header->folders);
    builder->folders[builder->folders_added++] = (fby_index_folder){
        .path = string_add(builder, path),
        .listing = listing,
        .stamp = *stamp,
    };
}

void fby_index_builder_sample(fby_index_builder *builder, const char *folder, const char *name, uint64_t size,
                              int64_t label)
{
    uint64_t path = builder->strings_used;

    assert(builder->samples_added < builder->header->samples);
    if (folder[0]) {
        string_add(builder, folder);
        builder->strings[builder->strings_used - 1] = '/';
    }
    string_add(builder, name);
    builder->samples[builder->samples_added++] =
        (fby_index_sample){.path = path, .size = size, .label = label};
    if (size > builder->header->largest) builder->header->largest = size;
}

/* Over "path NUL, size, label" of each sample in id order. The tag changes with this rule. */
static XXH128_hash_t fingerprint(const fby_index_builder *builder)
{
    static const char tag[] = "forebay data set 1";
    XXH3_state_t state;

    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, tag, sizeof tag);
    for (uint64_t i = 0; i < builder->samples_added; i++) {
        const fby_index_sample *sample = &builder->samples[i];
        const char *path = builder->strings + sample->path;
        XXH3_128bits_update(&state, path, strlen(path) + 1);
        XXH3_128bits_update(&state, &sample->size, sizeof sample->size);
        XXH3_128bits_update(&state, &sample->label, sizeof sample->label);
    }
    return XXH3_128bits_digest(&state);
}

void fby_index_builder_finish(fby_index_builder *builder, fby_index *out, int64_t checked, uint64_t left_out,
                              const fby_index_stamp *list)
{
    fby_index_header *header = builder->header;
    assert(builder->samples_added == header->samples && builder->folders_added == header->folders &&
           builder->classes_added == header->classes && builder->strings_used == header->string_bytes);

    XXH128_hash_t hash = fingerprint(builder);
    header->fingerprint_high = hash.high64;
    header->fingerprint_low = hash.low64;
    header->checked = checked;
    header->left_out = left_out;
    if (list) header->list = *list;
    fby_index_seal(header, builder->bytes);
    mprotect(header, builder->bytes, PROT_READ);

    *out = (fby_index){.mapping = header};
    fby_index_point(out, header);
    *builder = (fby_index_builder){0};
}
