/* The reference page names every key, every op and every parameter with its default. */
#include <stdlib.h>
#include <string.h>

#include "dataplane/spec/spec.h"
#include "tests/support/test.h"

static char *read_page(void)
{
    FILE *file = fopen(FBY_SPEC_PAGE, "r");
    cr_assert_not_null(file, "no %s", FBY_SPEC_PAGE);
    char *text = calloc(1, 256 * 1024);
    size_t length = fread(text, 1, 256 * 1024 - 1, file);
    cr_assert_gt(length, 1000);
    fclose(file);
    return text;
}

Test(spec_page, names_every_key)
{
    char *page = read_page(), row[100];
    for (uint32_t i = 0; i < fby_spec_key_count; i++) {
        snprintf(row, sizeof row, "\n| `%s` |", fby_spec_keys[i]);
        cr_assert_not_null(strstr(page, row), "no row for %s", fby_spec_keys[i]);
    }
    free(page);
}

Test(spec_page, names_every_parameter_and_its_default)
{
    char *page = read_page(), row[400];
    for (uint32_t i = 0; i < fby_op_count; i++) {
        const fby_op *op = fby_ops[i];
        snprintf(row, sizeof row, "\n### %s\n", op->name);
        const char *section = strstr(page, row);
        cr_assert_not_null(section, "no section for %s", op->name);
        const char *end = strstr(section + 5, "\n### ");
        for (uint32_t k = 0; k < op->param_count; k++) {
            const fby_param *param = &op->params[k];
            snprintf(row, sizeof row, "\n| `%s` | %s%s%s |", param->name, param->fallback ? "`" : "",
                     param->fallback ? param->fallback : "required", param->fallback ? "`" : "");
            const char *found = strstr(section, row);
            cr_assert(found && (!end || found < end), "%s: no row %s", op->name, row + 1);
            const char *line_end = strchr(found + 1, '\n');
            for (const char *const *choice = param->choices; choice && *choice; choice++) {
                snprintf(row, sizeof row, "`%s`", *choice);
                const char *named = strstr(found, row);
                cr_assert(named && named < line_end, "%s.%s: %s is not named", op->name, param->name,
                          *choice);
            }
        }
    }
    free(page);
}
