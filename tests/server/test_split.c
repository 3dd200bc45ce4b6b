/* A split chooses the samples that it says: parts against an order sorted whole, files of ids and classes
 * against what they name; and whatever is wrong is told with file and line. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "dataplane/sampler/sampler.h"
#include "dataplane/server/split.h"
#include "tests/io/opening.h"
#include "tests/support/scale.h"
#include "tests/support/test.h"

enum { MANY = 10000000, ROUNDS = 200 };

static fby_spec *spec_make(const char *split, const char *base)
{
    char text[4096];
    fby_error error = FBY_ERROR_INIT;
    fby_spec *spec;
    snprintf(text, sizeof text, "dataset: d\npipeline: [decode, center_crop: 8]\nsplit: %s\n", split);
    cr_assert_eq(fby_spec_parse(&spec, "s.yaml", text, strlen(text), base, &error), FBY_OK, "%s", error.text);
    return spec;
}

static bool has(const uint64_t *words, uint64_t id)
{
    return words[id / 64] >> (id % 64) & 1;
}

/* A bitmap of every id where there is none, and checks that it holds as many bits as it claims and none
 * beyond the last id. */
static uint64_t *whole_bitmap(uint64_t *words, uint64_t count, uint64_t samples)
{
    uint64_t bits = 0;
    if (!words) {
        cr_assert_eq(count, samples);
        words = calloc(samples / 64 + 1, sizeof *words);
        for (uint64_t id = 0; id < samples; id++) words[id / 64] |= UINT64_C(1) << id % 64;
    }
    for (uint64_t i = 0; i < (samples + 63) / 64; i++) bits += (uint64_t)__builtin_popcountll(words[i]);
    cr_assert_eq(bits, count);
    for (uint64_t id = samples; id % 64; id++) cr_assert(!has(words, id), "bit %" PRIu64 " is set", id);
    return words;
}

static uint64_t *part_choose(double low, double high, uint64_t seed, uint64_t samples, uint64_t *count)
{
    char split[200];
    snprintf(split, sizeof split, "{part: [%.17g, %.17g], seed: %" PRIu64 "}", low, high, seed);
    fby_spec *spec = spec_make(split, "/");
    fby_error error = FBY_ERROR_INIT;
    uint64_t *words;
    cr_assert_eq(fby_split_choose(&words, count, spec, samples, &error), FBY_OK, "%s", error.text);
    fby_spec_free(&spec);
    return whole_bitmap(words, *count, samples);
}

/* --- parts
 * -------------------------------------------------------------------------------------------------------- */

typedef struct ranked {
    uint64_t number, id;
} ranked;

static int ranked_compare(const void *a, const void *b)
{
    uint64_t one = ((const ranked *)a)->number, other = ((const ranked *)b)->number;
    return (one > other) - (one < other);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* docs/spec.md, word by word: SplitMix64's numbers, and all ids sorted by them. */
static ranked *order_make(uint64_t seed, uint64_t samples)
{
    ranked *order = malloc(samples * sizeof *order);
    uint64_t state = mix(seed ^ 0x73706c6974u);
    for (uint64_t id = 0; id < samples; id++) {
        state += 0x9e3779b97f4a7c15u;
        order[id] = (ranked){mix(state), id};
    }
    qsort(order, samples, sizeof *order, ranked_compare);
    return order;
}

static double part_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return (double)(mix(*state) >> 11) / 9007199254740992.0;
}

Test(split, parts_are_cut_from_the_documented_order)
{
    uint64_t state = (uint64_t)time(NULL), began = state;
    for (uint32_t i = 0; i < test_scaled(ROUNDS); i++) {
        uint64_t samples = 1 + (uint64_t)(part_random(&state) * 3000), seed = mix(state), count;
        double low = i % 3 ? part_random(&state) : 0, high = i % 5 ? part_random(&state) : 1;
        if (low > high) {
            double swapped = low;
            low = high;
            high = swapped;
        }
        uint64_t first = (uint64_t)(low * (double)samples + 0.5),
                 end = (uint64_t)(high * (double)samples + 0.5);
        if (first == end) continue;
        uint64_t *words = part_choose(low, high, seed, samples, &count);
        cr_assert_eq(count, end - first, "seed %" PRIu64, began);
        ranked *order = order_make(seed, samples);
        for (uint64_t place = 0; place < samples; place++)
            cr_assert_eq(has(words, order[place].id), place >= first && place < end,
                         "seed %" PRIu64 ", round %u, place %" PRIu64, began, i, place);
        free(order);
        free(words);
    }
}

/* 10 million ids, three parts that meet. */
Test(split, parts_that_meet_share_nothing_and_leave_nothing_out)
{
    static const uint64_t sizes[] = {4, 64, 100, 12345, MANY};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t samples = sizes[i], counts[3];
        uint64_t *parts[3] = {part_choose(0, 0.5, 7, samples, &counts[0]),
                              part_choose(0.5, 0.8, 7, samples, &counts[1]),
                              part_choose(0.8, 1, 7, samples, &counts[2])};
        cr_assert_eq(counts[0] + counts[1] + counts[2], samples);
        for (uint64_t word = 0; word < (samples + 63) / 64; word++) {
            uint64_t all = samples - word * 64 < 64 ? (UINT64_C(1) << samples % 64) - 1 : UINT64_MAX;
            cr_assert_eq(parts[0][word] | parts[1][word] | parts[2][word], all);
            cr_assert_eq(parts[0][word] & parts[1][word], 0);
            cr_assert_eq((parts[0][word] | parts[1][word]) & parts[2][word], 0);
        }
        for (int k = 0; k < 3; k++) free(parts[k]);
    }
}

Test(split, counts_are_exact)
{
    static const struct {
        const char *part;
        uint64_t samples, count;
    } cases[] = {
        {"0.8", 10, 8},          {"0.8", 11, 9},          /* 8.8 */ {"[0.8, 1]", 11, 2}, {"1/3", 100, 33},
        {"[1/3, 2/3]", 100, 34}, {"0.5", 5, 3},           /* 2.5 */ {"[1/2, 1]", 5, 2},  {"1", 7, 7},
        {"0.0001", 5000, 1},     {"0.1", MANY, MANY / 10}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char split[64];
        snprintf(split, sizeof split, "{part: %s}", cases[i].part);
        fby_spec *spec = spec_make(split, "/");
        fby_error error = FBY_ERROR_INIT;
        uint64_t *words, count;
        cr_assert_eq(fby_split_choose(&words, &count, spec, cases[i].samples, &error), FBY_OK, "%s",
                     error.text);
        cr_assert_eq(count, cases[i].count, "%s of %" PRIu64, cases[i].part, cases[i].samples);
        cr_assert_eq(words == NULL, count == cases[i].samples);
        free(whole_bitmap(words, count, cases[i].samples));
        fby_spec_free(&spec);
    }
}

/* Two halves of different seeds share a quarter of the ids, give or take. */
Test(split, a_part_depends_on_its_seed_alone)
{
    enum { SAMPLES = 100000 };
    uint64_t count, *base = part_choose(0, 0.5, 0, SAMPLES, &count),
                    *again = part_choose(0, 0.5, 0, SAMPLES, &count);
    cr_assert_arr_eq(base, again, SAMPLES / 8);
    free(again);
    static const uint64_t seeds[] = {1, 2, 1000, UINT64_MAX, 0x9e3779b97f4a7c15u};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        uint64_t shared = 0, *other = part_choose(0, 0.5, seeds[i], SAMPLES, &count);
        for (uint64_t word = 0; word < SAMPLES / 64; word++)
            shared += (uint64_t)__builtin_popcountll(base[word] & other[word]);
        /* Hypergeometric: mean 25,000, standard deviation 79. */
        cr_assert(shared > 24500 && shared < 25500, "seed %" PRIu64 " shares %" PRIu64, seeds[i], shared);
        free(other);
    }
    free(base);
}

/* No stretch of ids is favoured: each tenth of the ids has its tenth of the part. */
Test(split, a_part_is_spread_evenly)
{
    enum { SAMPLES = 100000 };
    uint64_t count, *words = part_choose(0, 0.2, 3, SAMPLES, &count);
    for (uint64_t tenth = 0; tenth < 10; tenth++) {
        uint64_t here = 0;
        for (uint64_t id = tenth * SAMPLES / 10; id < (tenth + 1) * SAMPLES / 10; id++)
            here += has(words, id);
        /* Mean 2,000, standard deviation 38. */
        cr_assert(here > 1800 && here < 2200, "tenth %" PRIu64 " has %" PRIu64, tenth, here);
    }
    free(words);
}

/* The sampler takes the bitmap as it is: an epoch has the part's ids, each once. */
Test(split, the_sampler_serves_a_part)
{
    enum { SAMPLES = 1000 };
    static fby_draw draw;
    uint64_t count, *words = part_choose(0.3, 0.8, 5, SAMPLES, &count);
    fby_error error = FBY_ERROR_INIT;
    fby_sampler *sampler;
    uint32_t task, drawn = 0;
    cr_assert_eq(fby_sampler_create(&sampler, SAMPLES, 0, &error), FBY_OK, "%s", error.text);
    fby_sampler_task what = {.epochs = 1, .batch = 16, .ranks = 1, .window = 3, .subset = words};
    cr_assert_eq(fby_sampler_join(sampler, &what, &task, &error), FBY_OK, "%s", error.text);
    while (fby_sampler_draw(sampler, 0, &draw) == 1) {
        for (uint32_t i = 0; i < draw.count; i++) {
            cr_assert(has(words, draw.ids[i]), "id %u", draw.ids[i]);
            words[draw.ids[i] / 64] &= ~(UINT64_C(1) << draw.ids[i] % 64);
        }
        drawn += draw.count;
        fby_sampler_give_back(sampler, task, 0, draw.count);
    }
    cr_assert_eq(drawn, count);
    fby_sampler_destroy(&sampler);
    free(words);
}

/* --- refusals
 * -------------------------------------------------------------------------------------------------------- */

static void check_told(int status, const fby_error *error, const char *expected)
{
    cr_assert_eq(status, FBY_EINVAL, "%s", error->text);
    cr_assert_not_null(strstr(error->text, expected), "said:     %s\nexpected: %s", error->text, expected);
    cr_assert(!strncmp(error->text, "s.yaml:3: split.", 16), "%s", error->text);
    cr_assert_not_null(strstr(error->text, "expected"), "%s", error->text);
    cr_assert_null(strpbrk(error->text, "\n\r\t"), "%s", error->text);
}

static void refused(const char *split, const char *base, uint64_t samples, const char *expected)
{
    fby_spec *spec = spec_make(split, base);
    fby_error error = FBY_ERROR_INIT;
    uint64_t *words, count;
    int status = fby_split_choose(&words, &count, spec, samples, &error);
    check_told(status, &error, expected);
    cr_assert_null(words);
    fby_spec_free(&spec);
}

Test(split, a_part_of_nothing_is_refused)
{
    refused("{part: 0.001}", "/", 100, "split.part: 0 to 0.001 of 100 samples holds none of them");
    refused("{part: [0.5, 0.501]}", "/", 10, "0.5 to 0.501 of 10 samples holds none of them");
    refused("{part: 0.4}", "/", 1, "0 to 0.4 of 1 samples holds none of them");
}

Test(split, without_a_split_every_sample_is_taken)
{
    fby_spec *spec = spec_make("all", "/");
    uint64_t *words, count;
    cr_assert_eq(fby_split_choose(&words, &count, spec, 12, NULL), FBY_OK);
    cr_assert_null(words);
    cr_assert_eq(count, 12);
    fby_spec_free(&spec);
}

/* --- files of ids
 * -------------------------------------------------------------------------------------------------------- */

static void ids_are(const tree *made, const char *text, uint64_t samples, const uint64_t *expected,
                    uint64_t count)
{
    tree_text(made, "ids.txt", text);
    fby_spec *spec = spec_make("{ids: ids.txt}", made->root);
    fby_error error = FBY_ERROR_INIT;
    uint64_t *words, found;
    cr_assert_eq(fby_split_choose(&words, &found, spec, samples, &error), FBY_OK, "%s\n%s", error.text, text);
    cr_assert_eq(found, count, "%" PRIu64 " ids of\n%s", found, text);
    words = whole_bitmap(words, found, samples);
    for (uint64_t i = 0; i < count; i++) cr_assert(has(words, expected[i]), "%" PRIu64, expected[i]);
    free(words);
    fby_spec_free(&spec);
}

Test(split, files_of_ids)
{
    tree made = tree_make();
    const uint64_t ids[] = {0, 63, 64, 99};
    ids_are(&made, "0\n63\n64\n99\n", 100, ids, 4);
    ids_are(&made, "99\n0\n64\n63", 100, ids, 4);
    ids_are(&made, "# kept\n\n  0 \r\n\t63\n\n #no\n64\r\n   \n0099", 100, ids, 4);
    ids_are(&made,
            "\xEF\xBB\xBF"
            "0\n63\n64\n99",
            100, ids, 4);
    ids_are(&made, "\xEF\xBB\xBF# a comment\n0", 1, ids, 1);

    /* Lines that end in, at and behind the ends of what is read at once; long comments. */
    enum { LONG = 200000 };
    char *text = malloc(LONG * 8), *end = text;
    uint64_t *all = malloc(LONG * sizeof *all);
    for (uint64_t i = 0; i < LONG; i++) {
        all[i] = (i * 7919) % LONG;
        end += sprintf(end, "%" PRIu64 "\n", all[i]);
    }
    ids_are(&made, text, LONG + 5, all, LONG);
    ids_are(&made, text, LONG, all, LONG); /* every one of them */
    text[0] = '#';
    memset(text + 1, 'x', 65534);
    strcpy(text + 65535, "\n64\n0\n63\n99");
    ids_are(&made, text, 100, ids, 4);
    free(all);
    free(text);
    tree_remove(&made);
}

static void file_refused(const tree *made, const char *text, const char *expected)
{
    tree_text(made, "ids.txt", text);
    refused("{ids: ids.txt}", made->root, 100, expected);
}

Test(split, files_that_are_wrong)
{
    tree made = tree_make();
    file_refused(&made, "1\n2\nabc\n",
                 "/ids.txt:3: \"abc\"; expected an id, 0 to 99, and nothing else on its line");
    file_refused(&made, "1\n 2 3 \r\n", "/ids.txt:2: \"2 3\"; expected an id");
    file_refused(&made, "-1\n", "/ids.txt:1: \"-1\"; expected an id");
    file_refused(&made, "1.0\n", "/ids.txt:1: \"1.0\"; expected an id");
    file_refused(&made, "1 # one\n", "/ids.txt:1: \"1 # one\"; expected an id");
    file_refused(&made, "\x01\xFF\t1\n", "/ids.txt:1: \"???1\"; expected an id");
    file_refused(&made, "1\n\n100\n",
                 "/ids.txt:3: \"100\" is out of range; expected 0 to 99, the ids of 100 samples");
    file_refused(&made, "18446744073709551616\n", "/ids.txt:1: \"18446744073709551616\" is out of range");
    file_refused(&made,
                 "184467440737095516170000000000000000000000000000000000000000000000000000000000000000\n",
                 "/ids.txt:1: \"18446744073709551617");
    file_refused(&made, "5\n# seven\n7\n5\n7",
                 "/ids.txt:4: 5 is given twice, first in line 1; expected each id once");
    file_refused(&made, "# none\n\n", "/ids.txt: it names no id; expected a text file");
    file_refused(&made, "", "/ids.txt: it names no id; expected");

    char *line = malloc(65536 + 10);
    line[0] = '1';
    line[1] = '\n';
    memset(line + 2, '7', 65536);
    strcpy(line + 2 + 65536, "\n");
    file_refused(&made, line, "/ids.txt:2: a line of more than 65536 bytes; expected an id");
    free(line);

    refused("{ids: none.txt}", made.root, 100,
            "/none.txt: No such file or directory; expected a text file with an id on each line");
    refused("{ids: .}", made.root, 100, "is a folder; expected");
    tree_path pipe = tree_at(&made, "pipe");
    cr_assert_eq(mkfifo(pipe.text, 0600), 0);
    refused("{ids: pipe}", made.root, 100, "/pipe: is no regular file; expected");
    tree_remove(&made);
}

/* A NUL ends no line. */
Test(split, a_nul_in_a_file_of_ids_is_refused)
{
    tree made = tree_make();
    tree_path path = tree_at(&made, "ids.txt");
    FILE *file = fopen(path.text, "w");
    cr_assert_eq(fwrite("12\0003\n", 1, 5, file), 5);
    fclose(file);
    refused("{ids: ids.txt}", made.root, 100, "/ids.txt:1: \"12?3\"; expected an id");
    tree_remove(&made);
}

/* --- classes
 * -------------------------------------------------------------------------------------------------------- */

/* What a split of an open data set chooses: exactly the samples whose class (or label) is one of `names`. */
static void classes_are(const fby_dataset *dataset, const char *split, const char *const *names,
                        uint64_t count)
{
    fby_spec *spec = spec_make(split, "/");
    fby_error error = FBY_ERROR_INIT;
    uint64_t *words, found, samples = fby_dataset_count(dataset);
    cr_assert_eq(fby_split_ids(&words, &found, spec, dataset, &error), FBY_OK, "%s", error.text);
    cr_assert_eq(found, count, "%s: %" PRIu64, split, found);
    words = whole_bitmap(words, found, samples);
    for (uint64_t id = 0; id < samples; id++) {
        char label[32];
        bool expected = false;
        snprintf(label, sizeof label, "%" PRId64, fby_dataset_label(dataset, id));
        const char *name = fby_dataset_classes(dataset)
                               ? fby_dataset_class(dataset, (uint32_t)fby_dataset_label(dataset, id))
                               : label;
        for (const char *const *one = names; *one; one++) expected |= !strcmp(*one, name);
        cr_assert_eq(has(words, id), expected, "%s: id %" PRIu64 " of class %s", split, id, name);
    }
    free(words);
    fby_spec_free(&spec);
}

static void classes_refused(const fby_dataset *dataset, const char *split, const char *expected)
{
    fby_spec *spec = spec_make(split, "/");
    fby_error error = FBY_ERROR_INIT;
    uint64_t *words, count;
    int status = fby_split_ids(&words, &count, spec, dataset, &error);
    check_told(status, &error, expected);
    cr_assert_null(words);
    fby_spec_free(&spec);
}

Test(split, classes_of_a_folder)
{
    tree made = tree_make();
    static const char *const names[] = {"cat", "dog", "horse", "it's", "3"};
    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t k = 0; k <= i * 20; k++) {
            char path[64];
            snprintf(path, sizeof path, "data/%s/%u.jpg", names[i], k);
            tree_file(&made, path, 10);
        }
    tree_folder(&made, "data/none");
    tree_path data = tree_at(&made, "data");
    fby_dataset_options options = {.path = data.text, .allow_empty = true, .cache = "", .threads = 1};
    fby_error error = FBY_ERROR_INIT;
    fby_dataset *dataset;
    cr_assert_eq(fby_dataset_open(&dataset, &options, &error), FBY_OK, "%s", error.text);

    classes_are(dataset, "{classes: [dog]}", (const char *const[]){"dog", NULL}, 21);
    classes_are(dataset, "{classes: [horse, cat, none]}", (const char *const[]){"horse", "cat", NULL}, 42);
    classes_are(dataset, "{classes: [\"it's\", 3]}", (const char *const[]){"it's", "3", NULL}, 142);
    classes_are(dataset, "{classes: [3, cat, dog, horse, 'it''s']}",
                (const char *const[]){"3", "cat", "dog", "horse", "it's", NULL}, 205);
    classes_refused(
        dataset, "{classes: [dog, hors]}",
        "split.classes: the data set has no class \"hors\"; expected names of its 6 classes; did you "
        "mean horse?");
    classes_refused(dataset, "{classes: [zebra, aardvark, cat]}", "has no class \"zebra\"; expected");
    classes_refused(dataset, "{classes: [none]}", "none of these classes has a sample");
    fby_dataset_close(&dataset);
    tree_remove(&made);
}

Test(split, classes_of_a_list)
{
    tree made = tree_make();
    tree_file(&made, "a.jpg", 10);
    char numbers[4000] = "", named[4000] = "";
    for (int i = 0; i < 200; i++) {
        sprintf(numbers + strlen(numbers), "a.jpg\t%d\n", i % 7 - 2);
        sprintf(named + strlen(named), "a.jpg\t%s\n", i % 4 ? "red" : "blue");
    }
    tree_text(&made, "numbers.txt", numbers);
    tree_text(&made, "named.txt", named);
    tree_path path = tree_at(&made, "numbers.txt");
    fby_error error = FBY_ERROR_INIT;
    fby_dataset *dataset = opening(FBY_DATASET_LIST, path.text, &error);
    cr_assert_not_null(dataset, "%s", error.text);
    classes_are(dataset, "{classes: [0]}", (const char *const[]){"0", NULL}, 29);
    classes_are(dataset, "{classes: [4, -2, 01]}", (const char *const[]){"4", "-2", "1", NULL}, 28 + 29 + 29);
    classes_refused(dataset, "{classes: [1, cat]}",
                    "\"cat\", but the data set's labels are numbers; expected whole numbers");
    classes_refused(dataset, "{classes: [99999999999999999999]}", "but the data set's labels are numbers");
    classes_refused(dataset, "{classes: [1, 01]}", "1 is given twice; expected it once");
    classes_refused(dataset, "{classes: [1, 9, 5]}",
                    "no sample has the label 9; expected labels of the data set, which are between -2 and 4");
    fby_dataset_close(&dataset);

    path = tree_at(&made, "named.txt");
    dataset = opening(FBY_DATASET_LIST, path.text, &error);
    cr_assert_not_null(dataset, "%s", error.text);
    classes_are(dataset, "{classes: [blue]}", (const char *const[]){"blue", NULL}, 50);
    classes_refused(dataset, "{classes: [bleu]}", "did you mean blue?");

    /* The other kinds count the data set's samples. */
    fby_spec *spec = spec_make("{part: 0.25}", "/");
    uint64_t *words, count;
    cr_assert_eq(fby_split_ids(&words, &count, spec, dataset, &error), FBY_OK, "%s", error.text);
    cr_assert_eq(count, 50);
    free(words);
    fby_spec_free(&spec);
    fby_dataset_close(&dataset);
    tree_remove(&made);
}
