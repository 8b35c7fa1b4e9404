"""What is known not to work yet, by test: a test listed here must fail, so an entry goes when its gap is closed.

Each reason says what is wrong and how a user gets around it.
"""

PSUM_BETWEEN = (
    "with check_vma, the psum of a replicated weight's cotangents may stand between a receive and a send of the "
    "backward pass, which is a deadlock; vary the weight with lax.pcast first, or switch check_vma off"
)

GAPS: dict[str, str] = {
    **{f"test_receive_before_send[{size}-vma]": PSUM_BETWEEN for size in (3, 4, 8)},
    "test_send_only_where_weights_are_used[vma]": PSUM_BETWEEN,
    "test_equals_the_ppermute_version[grad-of-grad-of-pipeline]": PSUM_BETWEEN,
}
