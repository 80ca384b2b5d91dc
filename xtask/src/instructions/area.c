/* Under valgrind the kernel restarts no sequences: threads get an area that says they run on
 * processor 0, so that counters are added to as they are without valgrind. */
struct area { unsigned cpu_id_start, cpu_id; unsigned long descriptor; unsigned flags; };
static _Thread_local __attribute__((tls_model("initial-exec"), aligned(32))) struct area area;
unsigned __rseq_size = 20;
long __rseq_offset;
__attribute__((constructor)) static void find(void) {
    __rseq_offset = (char *)&area - (char *)__builtin_thread_pointer();
}
