/* Prints a folder's samples for folder_order.py: "label size path NUL" each, then "name NUL" of each class
 * after an empty record. */
#include "io/dataset.h"

int main(int count, char **arguments)
{
    fby_dataset *dataset;
    fby_error error = FBY_ERROR_INIT;
    fby_dataset_options options = {.path = count > 1 ? arguments[1] : "", .cache = ""};

    if (fby_dataset_open(&dataset, &options, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    for (uint64_t i = 0; i < fby_dataset_count(dataset); i++) {
        printf("%ld %lu %s", (long)fby_dataset_label(dataset, i), (unsigned long)fby_dataset_size(dataset, i),
               fby_dataset_path(dataset, i));
        putchar('\0');
    }
    putchar('\0');
    for (uint32_t i = 0; i < fby_dataset_classes(dataset); i++) {
        fputs(fby_dataset_class(dataset, i), stdout);
        putchar('\0');
    }
    fby_dataset_close(&dataset);
    return 0;
}
