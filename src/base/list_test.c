/* Tests of base/list.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/list.h"

struct item {
    int value;
    struct um_list link;
};

static void a_new_list_is_empty(void **state)
{
    (void)state;
    struct um_list head;
    um_list_init(&head);
    assert_true(um_list_is_empty(&head));
    assert_null(um_list_first(&head));
}

static void append_keeps_the_order(void **state)
{
    (void)state;
    struct um_list head;
    struct item items[4];
    um_list_init(&head);
    for (int i = 0; i < 4; i++) {
        items[i].value = i;
        um_list_append(&head, &items[i].link);
    }
    int expected = 0;
    for (struct um_list *l = head.next; l != &head; l = l->next)
        assert_int_equal(UM_CONTAINER(l, struct item, link)->value, expected++);
    assert_int_equal(expected, 4);
}

static void unlink_takes_out_one_and_again_is_harmless(void **state)
{
    (void)state;
    struct um_list head, a, b, c;
    um_list_init(&head);
    um_list_append(&head, &a);
    um_list_append(&head, &b);
    um_list_append(&head, &c);
    um_list_unlink(&b);
    um_list_unlink(&b);
    assert_ptr_equal(um_list_first(&head), &a);
    assert_ptr_equal(a.next, &c);
    assert_ptr_equal(c.prev, &a);
    um_list_unlink(&a);
    um_list_unlink(&c);
    assert_true(um_list_is_empty(&head));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_list_is_empty),
        cmocka_unit_test(append_keeps_the_order),
        cmocka_unit_test(unlink_takes_out_one_and_again_is_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
