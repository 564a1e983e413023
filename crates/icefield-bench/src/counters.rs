//! The processor's performance counters for this process's threads, where the system gives access.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    L1dLoads,
    L1dMisses,
    LlcLoads,
    LlcMisses,
    /// Nanoseconds on a processor: counted by the kernel, so available on every machine.
    #[cfg(test)]
    TaskClock,
}

impl Event {
    /// Returns the type and number of the event, from `linux/perf_event.h`.
    fn numbers(self) -> (u32, u64) {
        const CACHE: u32 = 3;
        // The cache, then the operation (0: loads) and the outcome (1: a miss), one byte each.
        match self {
            Self::L1dLoads => (CACHE, 0),
            Self::L1dMisses => (CACHE, 0x1_0000),
            Self::LlcLoads => (CACHE, 2),
            Self::LlcMisses => (CACHE, 0x1_0002),
            #[cfg(test)]
            Self::TaskClock => (1, 1),
        }
    }
}

/// The first version of the kernel's event attributes, which every kernel accepts.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    number: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    breakpoint_address: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

/// Count threads that start later too; do not count the kernel or the hypervisor.
const INHERIT: u64 = 1 << 1;
const NOT_KERNEL: u64 = 1 << 5;
const NOT_HYPERVISOR: u64 = 1 << 6;
/// Report the enabled and the running time of the event beside the count.
const TIMES: u64 = 0b11;

/// A running count of this thread and of the threads that it starts.
pub(crate) struct Counter(File);

impl Counter {
    pub fn start(event: Event) -> io::Result<Self> {
        let (kind, number) = event.numbers();
        let attributes = Attributes {
            kind,
            number,
            size: size_of::<Attributes>() as u32,
            read_format: TIMES,
            flags: INHERIT | NOT_KERNEL | NOT_HYPERVISOR,
            ..Attributes::default()
        };
        let close_on_exec: libc::c_ulong = 1 << 3;
        // SAFETY: the kernel reads as many bytes from the attributes as their size field says, and keeps no
        // pointer. The other arguments: this thread, any processor, no group.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                0 as libc::pid_t,
                -1 as libc::c_int,
                -1 as libc::c_int,
                close_on_exec,
            )
        };
        match i32::try_from(fd) {
            // SAFETY: the kernel has just created this descriptor, and no other code has it.
            Ok(fd @ 0..) => Ok(Self(unsafe { File::from_raw_fd(fd) })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the count so far, of this thread and of ended threads; an estimate where the processor has too few
    /// counters for all events at once.
    pub fn read(&mut self) -> io::Result<f64> {
        let mut words = [[0; 8]; 3];
        self.0.read_exact(words.as_flattened_mut())?;
        let [count, wanted, counted] = words.map(|word| u64::from_ne_bytes(word) as f64);
        Ok(if counted > 0.0 { count * wanted / counted } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_counted_where_counting_is_allowed() {
        let Ok(mut counter) = Counter::start(Event::TaskClock) else {
            println!("this system keeps all counters from us");
            return;
        };
        let before = counter.read().expect("a count");
        let spun = std::thread::spawn(|| {
            (0..3_000_000_u64).fold(0, |sum, n| std::hint::black_box(sum ^ n))
        });
        std::hint::black_box(spun.join().expect("a thread"));
        let after = counter.read().expect("a count");
        println!("{} ns", after - before);
        assert!(after > before);
    }
}
