/* File lists: both forms, numbers and names, and every line that is wrong. */
#include "tests/io/opening.h"
#include "tests/support/test.h"

#include <sys/stat.h>
#include <unistd.h>

static fby_dataset *list_open(const tree *made, const char *name, const char *text, fby_error *error)
{
    tree_text(made, name, text);
    return opening(FBY_DATASET_LIST, tree_at(made, name).text, error);
}

static tree pictures_make(void)
{
    tree made = tree_make();
    tree_file(&made, "1.jpg", 11);
    tree_file(&made, "sub/2.png", 12);
    tree_file(&made, "with space\tand tab.jpg", 13);
    tree_file(&made, "non\xffutf8.jpg", 14);
    return made;
}

Test(dataset_list, numbers)
{
    tree made = pictures_make();
    char text[2000];
    tree_path absolute = tree_at(&made, "1.jpg");
    snprintf(text, sizeof text,
             "\xef\xbb\xbfsub/2.png\t7\r\n\n1.jpg\t-3\nwith space\tand tab.jpg\t+9223372036854775807\n"
             "non\xffutf8.jpg\t0007\n%s\t0\n1.jpg\t-9223372036854775808",
             absolute.text);
    fby_error error = FBY_ERROR_INIT;
    fby_dataset *dataset = list_open(&made, "list.txt", text, &error);
    cr_assert_not_null(dataset, "%s", error.text);

    const char *const paths[] = {"sub/2.png",       "1.jpg",       "with space\tand tab.jpg",
                                 "non\xffutf8.jpg", absolute.text, "1.jpg"};
    static const int64_t labels[] = {7, -3, INT64_MAX, 7, 0, INT64_MIN};
    static const uint64_t sizes[] = {12, 11, 13, 14, 11, 11};
    cr_assert_eq(fby_dataset_count(dataset), 6);
    for (unsigned i = 0; i < 6; i++) {
        cr_assert_str_eq(fby_dataset_path(dataset, i), paths[i]);
        cr_assert_eq(fby_dataset_label(dataset, i), labels[i]);
        cr_assert_eq(fby_dataset_size(dataset, i), sizes[i]);
        cr_assert_eq(faccessat(fby_dataset_directory(dataset), fby_dataset_path(dataset, i), R_OK, 0), 0);
    }
    cr_assert_eq(fby_dataset_classes(dataset), 0);
    cr_assert_null(fby_dataset_class(dataset, 0));
    cr_assert_eq(fby_dataset_largest(dataset), 14);
    fby_dataset_close(&dataset);
    tree_remove(&made);
}

Test(dataset_list, names_are_sorted_classes)
{
    tree made = pictures_make();
    static const int64_t labels[] = {2, 0, 1, 2};
    static const char *const classes[] = {"Zebra", "cat", "dog house"};
    static const struct {
        const char *name, *text;
    } lists[] = {
        {"list.tsv", "1.jpg\tdog house\nsub/2.png\tZebra\n1.jpg\tcat\n1.jpg\tdog house\n"},
        {"list.jsonl", "{\"path\": \"1.jpg\", \"label\": \"dog house\", \"other\": [1, {}]}\n"
                       "{\"label\": \"Zebra\", \"path\": \"sub\\/2.png\"}\r\n\n"
                       "{\"path\": \"1.jpg\", \"label\": \"cat\"}\n"
                       "{\"path\": \"\\u0031.jpg\", \"label\": \"dog house\"}"},
        {"list.txt", "\n {\"path\": \"1.jpg\", \"label\": \"dog house\"}\n"
                     "{\"path\": \"sub/2.png\", \"label\": \"Zebra\"}\n"
                     "{\"path\": \"1.jpg\", \"label\": \"cat\"}\n"
                     "{\"path\": \"1.jpg\", \"label\": \"dog house\"}\n"},
    };
    fby_dataset *first = NULL;
    for (unsigned l = 0; l < 3; l++) {
        fby_error error = FBY_ERROR_INIT;
        fby_dataset *dataset = list_open(&made, lists[l].name, lists[l].text, &error);
        cr_assert_not_null(dataset, "%s", error.text);
        cr_assert_eq(fby_dataset_count(dataset), 4);
        for (unsigned i = 0; i < 4; i++) cr_assert_eq(fby_dataset_label(dataset, i), labels[i]);
        cr_assert_eq(fby_dataset_classes(dataset), 3);
        for (unsigned i = 0; i < 3; i++) cr_assert_str_eq(fby_dataset_class(dataset, i), classes[i]);
        cr_assert_str_eq(fby_dataset_path(dataset, 1), "sub/2.png");
        if (first) {
            cr_assert(opening_same(first, dataset), "the same data in another form");
            fby_dataset_close(&dataset);
        } else {
            first = dataset;
        }
    }
    fby_dataset_close(&first);
    tree_remove(&made);
}

Test(dataset_list, json_numbers)
{
    tree made = pictures_make();
    fby_error error = FBY_ERROR_INIT;
    fby_dataset *dataset = list_open(&made, "l.ndjson", "{\"path\": \"1.jpg\", \"label\": -5}\n", &error);
    cr_assert_not_null(dataset, "%s", error.text);
    cr_assert_eq(fby_dataset_label(dataset, 0), -5);
    cr_assert_eq(fby_dataset_classes(dataset), 0);
    fby_dataset_close(&dataset);
    tree_remove(&made);
}

Test(dataset_list, wrong_lines_are_named)
{
    tree made = pictures_make();
    mkfifo(tree_at(&made, "pipe.jpg").text, 0644);
    static const struct {
        const char *name, *text, *said;
    } cases[] = {
        {"a.txt", "", "/a.txt: names no file"},
        {"a.txt", "\n\n", "/a.txt: names no file"},
        {"a.txt", "1.jpg\t1\n1.jpg 2\n", "/a.txt:2: no TAB: expected `path TAB label`"},
        {"a.txt", "1.jpg\t1\n\t2\n", "/a.txt:2: the path is empty"},
        {"a.txt", "1.jpg\t1\n1.jpg\t\n", "/a.txt:2: the label is empty"},
        {"a.txt", "1.jpg\t1\n\n1.jpg\tcat\n",
         "/a.txt:3: the label is a name, but that of line 1 is a number"},
        {"a.txt", "1.jpg\tcat\n1.jpg\t1\n", "/a.txt:2: the label is a number, but that of line 1 is a name"},
        {"a.txt", "1.jpg\t9223372036854775808\n", "/a.txt:1: the label doesn't fit into 64 bits"},
        {"a.txt", "1.jpg\t99999999999999999999999999999999999999999\n", "/a.txt:1: the label doesn't fit"},
        {"a.txt", "1.jpg\t1\nmissing.jpg\t2\n", "/a.txt:2: can't use \"missing.jpg\": No such file"},
        {"a.txt", "1.jpg\t1\nsub\t2\n", "/a.txt:2: can't use \"sub\": Is a directory"},
        {"a.txt", "1.jpg\t1\npipe.jpg\t2\n", "/a.txt:2: can't use \"pipe.jpg\": no regular file"},
        {"a.jsonl", "{\"path\": \"1.jpg\", \"label\": 1}\n{\"path\": \"1.jpg\", \"label\": }\n",
         "/a.jsonl:2: column "},
        {"a.jsonl", "[1]\n", "/a.jsonl:1: expected an object"},
        {"a.jsonl", "{\"label\": 1}\n", "/a.jsonl:1: expected a string for \"path\", which is missing"},
        {"a.jsonl", "{\"path\": 1, \"label\": 1}\n", "/a.jsonl:1: expected a string for \"path\""},
        {"a.jsonl", "{\"path\": \"1.jpg\"}\n", "for \"label\", which is missing"},
        {"a.jsonl", "{\"path\": \"1.jpg\", \"label\": 1.5}\n",
         "expected an integer or a class's name for \"label\""},
        {"a.jsonl", "{\"path\": \"1.jpg\", \"label\": 1, \"label\": 2}\n", "/a.jsonl:1: column "},
        {"a.jsonl", "{\"path\": \"\", \"label\": 1}\n", "/a.jsonl:1: the path is empty"},
        {"a.jsonl", "{\"path\": \"1\\u0000.jpg\", \"label\": 1}\n", "/a.jsonl:1: column "},
        {"a.jsonl", "{\"path\": \"non\xffutf8.jpg\", \"label\": 1}\n", "/a.jsonl:1: column "},
        {"a.jsonl", "1.jpg\t1\n", "/a.jsonl:1: column "},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fby_error error = FBY_ERROR_INIT;
        cr_assert_null(list_open(&made, cases[i].name, cases[i].text, &error), "%s", cases[i].text);
        cr_assert_eq(error.code, FBY_EINVAL, "%s", cases[i].text);
        cr_assert(strstr(error.text, cases[i].said), "%s", error.text);
    }
    tree_remove(&made);
}

Test(dataset_list, the_first_of_many_wrong_lines)
{
    enum { LINES = 5000 };
    tree made = pictures_make();
    static char text[LINES * 16];
    size_t used = 0;
    for (unsigned i = 1; i <= LINES; i++) {
        used += (size_t)sprintf(text + used, "%s\t1\n", i >= 3000 && i % 7 == 0 ? "nowhere" : "1.jpg");
    }
    fby_error error = FBY_ERROR_INIT;
    cr_assert_null(list_open(&made, "a.txt", text, &error));
    cr_assert(strstr(error.text, "/a.txt:3003: "), "%s", error.text);
    tree_remove(&made);
}

Test(dataset_list, long_lines_and_nul_bytes)
{
    tree made = pictures_make();
    static char text[10000];
    fby_error error = FBY_ERROR_INIT;
    memset(text, 'x', 9000);
    strcpy(text + 9000, "\t1\n");
    cr_assert_null(list_open(&made, "a.txt", text, &error));
    cr_assert(strstr(error.text, "/a.txt:1: the path is longer than 4095 bytes"), "%s", error.text);
    strcpy(text + 4000, "\t1\n");
    cr_assert_null(list_open(&made, "a.txt", text, &error));
    cr_assert(strstr(error.text, "File name too long"), "%s", error.text);

    FILE *file = fopen(tree_at(&made, "nul.txt").text, "w");
    fwrite("1.jpg\t1\n1\0.jpg\t1\n", 1, 17, file);
    fclose(file);
    cr_assert_null(opening(FBY_DATASET_LIST, tree_at(&made, "nul.txt").text, &error));
    cr_assert(strstr(error.text, "/nul.txt:2: holds a NUL byte"), "%s", error.text);
    tree_remove(&made);
}

static bool progress_cancel(void *user, uint64_t found, uint64_t done)
{
    (void)user;
    (void)found;
    (void)done;
    return false;
}

Test(dataset_list, what_is_refused_and_cancelled)
{
    tree made = pictures_make();
    fby_error error = FBY_ERROR_INIT;
    cr_assert_null(opening(FBY_DATASET_LIST, made.root, &error));
    cr_assert(strstr(error.text, "no regular file") && strstr(error.text, "`folder:`"), "%s", error.text);
    cr_assert_null(opening(FBY_DATASET_LIST, tree_at(&made, "nowhere.txt").text, &error));
    cr_assert(strstr(error.text, "can't open the file list"), "%s", error.text);
    cr_assert_null(opening(FBY_DATASET_LIST, tree_at(&made, "pipe.jpg").text, &error));

    tree_text(&made, "a.txt", "1.jpg\t1\n");
    tree_path list = tree_at(&made, "a.txt");
    fby_dataset *dataset;
    fby_dataset_options options = {
        .kind = FBY_DATASET_LIST, .path = list.text, .cache = "", .progress = progress_cancel};
    cr_assert_eq(fby_dataset_open(&dataset, &options, &error), FBY_EINTR);
    tree_remove(&made);
}
