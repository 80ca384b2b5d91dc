//! Reads of the hot path allocate no heap memory. A counting allocator checks that.

#![expect(unsafe_code, reason = "a global allocator is unsafe to implement")]

use pando_device::{
    Backend, Channel, ChannelOptions, Create, Device, File, IoBuf, MemoryDevice, NullDevice,
    OpenOptions,
};

use crate::places;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all calls go to the system's allocator. The count needs neither memory nor a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the contract, and the arguments are passed on unchanged.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract, and the arguments are passed on unchanged.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_of_reads<D: Device>(device: &D) -> u64 {
    const DEPTH: u64 = 32;
    let file = device
        .open("data", OpenOptions::create(Create::New).direct())
        .unwrap();
    file.write_at(&IoBuf::copy_of(&[1; 4096]), 0).unwrap();
    let mut channel = device.channel(ChannelOptions::new(DEPTH as usize)).unwrap();
    let mut buffers = channel.buffers(DEPTH as usize / 2, 4096);
    buffers.extend((0..DEPTH / 2).map(|_| IoBuf::new(4096)));
    let mut done = Vec::with_capacity(DEPTH as usize);
    let mut before = 0;
    for round in 0..20 {
        // After the first round all queues have reached their size.
        if round == 1 {
            before = COUNT.with(Cell::get);
        }
        while let Some(buffer) = buffers.pop() {
            channel.submit_read(&file, 0, buffer, round).unwrap();
        }
        while channel.in_flight() > 0 {
            channel.wait(None);
            channel.reap(&mut done);
        }
        for completion in done.drain(..) {
            completion.result.unwrap();
            buffers.push(completion.buffer);
        }
    }
    COUNT.with(Cell::get) - before
}

#[test]
fn a_pending_read_allocates_nothing() {
    assert!(COUNT.with(Cell::get) > 0, "the allocator counts");
    assert_eq!(allocations_of_reads(&MemoryDevice::new(1 << 20)), 0);
    assert_eq!(allocations_of_reads(&NullDevice::new()), 0);
    for backend in Backend::ALL {
        places::with(backend, |device| {
            assert_eq!(allocations_of_reads(&device), 0, "{backend}");
        });
    }
}
