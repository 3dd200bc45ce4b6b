/* Index files in the cache folder. They are an optimisation: nothing here fails, it only doesn't help. */
#ifndef FBY_IO_INDEX_FILE_H
#define FBY_IO_INDEX_FILE_H

#include "io/index.h"

/* Finds the cache folder: `given`, or $XDG_CACHE_HOME/forebay, or ~/.cache/forebay. False: there is none. */
bool fby_index_file_folder(char *out, size_t bytes, const char *given);

/* Path of the index file of the data set at `root` (absolute). False: it would be too long. */
bool fby_index_file_path(char *out, size_t bytes, const char *folder, fby_dataset_kind kind,
                         const char *root);

/* Maps an index file if it is there, is this user's own, and holds an index. */
bool fby_index_file_load(fby_index *out, const char *path);

/* Writes the index beside `path`, and renames it into place, so that no reader ever sees half of one; makes
 * the cache folder. `checked` is put into the header. On success the index is mapped from the file, and its
 * memory is given back; else it stays where it is. */
void fby_index_file_save(fby_index *index, const char *folder, const char *path, int64_t checked);

#endif
