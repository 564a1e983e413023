//! The processor's own counters of this process's threads, where the system lets it have them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

/// What can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    L1dLoads,
    L1dMisses,
    LlcLoads,
    LlcMisses,
    /// Nanoseconds on a processor: counted by the system itself, and so everywhere.
    #[cfg(test)]
    TaskClock,
}

impl Event {
    /// Type and number of the event, from `linux/perf_event.h`.
    fn numbers(self) -> (u32, u64) {
        const CACHE: u32 = 3;
        // The cache, then what is done (0: loads) and how it ends (1: by a miss), a byte each.
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

/// The first version of the kernel's description of an event, which every kernel takes.
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

/// Threads that are started later are counted, too; neither the kernel nor a hypervisor is.
const INHERIT: u64 = 1 << 1;
const NOT_KERNEL: u64 = 1 << 5;
const NOT_HYPERVISOR: u64 = 1 << 6;
/// How long the event was wanted and how long it was counted, beside the count.
const TIMES: u64 = 0b11;

/// A count that runs, of this thread and those that it starts.
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
        // SAFETY: the kernel reads as many bytes from the attributes as their size says, and keeps no pointer. What
        // follows: this thread, any processor, no group.
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
            // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
            Ok(fd @ 0..) => Ok(Self(unsafe { File::from_raw_fd(fd) })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The count so far, of threads that have ended and of this one; estimated where the processor has too few
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
