#include "tests/support/test.h"
Test(placeholder, x)
{
    cr_assert(1);
}
