//! Available space and memory. Large requests are compared with it before any space is taken, and so are requests for a
//! file that was refused space recently.
//!
//! A result is valid only at the moment of the check, and the check reserves nothing: a later reservation of space can
//! still fail, and returns the usual error.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::fstatvfs;
use rustix::io::Errno;
use rustix::process::{Resource, geteuid, getrlimit};

/// Smaller requests are not checked against the free space, unless the file was refused space recently.
pub(super) const MOST_UNASKED: u64 = 1 << 20;
/// If more space than this was free, a refusal is not remembered. A full file system may report some free space: ext4
/// keeps up to 4,096 blocks back.
const KEPT_BACK: u64 = 64 << 20;
/// The time for which a refusal is remembered. It is limited because a file system may free space without reporting it.
const REMEMBERED: Duration = Duration::from_secs(1);
/// Smaller requests for memory are not checked: the check takes longer than the creation of a small table.
pub(super) const ALWAYS_THERE: u64 = 64 << 20;

/// Returns the number of bytes that a file system has left for this process; `None` where it does not report that.
pub(super) fn of_file_system(file: BorrowedFd<'_>) -> Option<u64> {
    let status = fstatvfs(file).ok()?;
    // Blocks that are reserved for the administrator are available to root only.
    let blocks = if geteuid().is_root() { status.f_bfree } else { status.f_bavail };
    // Some file systems without this information report zero blocks.
    (status.f_blocks > 0).then(|| blocks.saturating_mul(status.f_frsize))
}

/// The last refusal of space to a file.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    last: Option<Refused>,
    /// The free bytes before the current request, if they were queried.
    left: Option<u64>,
    /// The next request queries the free space first.
    asks: bool,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    bytes: u64,
    /// The bytes that were free when the request was refused.
    left: u64,
    when: Instant,
}

impl Refusal {
    /// Returns whether a request is certain to fail: less than `bytes` is free, or a recent request for the same number
    /// of bytes or fewer failed when at least as much space was free as now. The check avoids the request, which on a
    /// full ext4 waits for a commit of its journal.
    pub(super) fn is_certain(&mut self, file: BorrowedFd<'_>, bytes: u64) -> bool {
        let asks = self.asks || bytes >= MOST_UNASKED;
        self.left = if asks { of_file_system(file) } else { None };
        self.left.is_some_and(|left| left < bytes || self.was_refused(bytes, left, Instant::now()))
    }

    fn was_refused(&self, bytes: u64, left: u64, now: Instant) -> bool {
        self.last.is_some_and(|last| {
            let is_fresh = now.saturating_duration_since(last.when) < REMEMBERED;
            is_fresh && left <= last.left && bytes >= last.bytes
        })
    }

    /// Records that a request failed.
    pub(super) fn note(&mut self, file: BorrowedFd<'_>, bytes: u64, errno: Errno) {
        self.asks = errno == Errno::NOSPC;
        if self.asks {
            self.remember(bytes, of_file_system(file), Instant::now());
        }
    }

    /// Remembers the smaller of the free bytes before and after the request: other processes may have freed some in
    /// between.
    fn remember(&mut self, bytes: u64, left: Option<u64>, when: Instant) {
        let left = self.left.zip(left).map(|(before, now)| before.min(now));
        let refused = |left| Refused { bytes, left, when };
        self.last = left.filter(|&left| left < KEPT_BACK).map(refused);
    }
}

/// Returns the maximal size of a file of this process.
pub(super) fn of_a_file() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// Returns the bytes of memory that this process can still get, in the system and in each of its control groups;
/// `None` where neither reports it.
pub(super) fn of_memory() -> Option<u64> {
    memory(in_meminfo, &["inactive_file "])
}

/// Returns the bytes of memory that pages of files may take, with those that they take already; `None` as above.
pub(super) fn of_file_pages() -> Option<u64> {
    memory(|text| in_line(text, "MemAvailable:"), &["inactive_file ", "active_file "])
}

/// The memory that is left in the system and in each control group. `lists` names the pages that a group releases.
fn memory(in_system: impl Fn(&str) -> Option<u64>, lists: &[&str]) -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| in_system(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").ok();
    let lines = groups.iter().flat_map(|text| text.lines());
    system.into_iter().chain(lines.filter_map(|line| of_group(line, lists))).min()
}

/// Returns the bytes in a line of `/proc/meminfo`.
fn in_line(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes = rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    Some(kilobytes.saturating_mul(1024))
}

/// Returns the available memory, including free swap space.
fn in_meminfo(text: &str) -> Option<u64> {
    let available = in_line(text, "MemAvailable:")?;
    Some(available.saturating_add(in_line(text, "SwapFree:").unwrap_or(0)))
}

/// Returns the least memory left in any of these groups: the control group that a line of `/proc/self/cgroup` names,
/// and its ancestors.
fn of_group(line: &str, lists: &[&str]) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let (mount, most, used) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
        "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        _ => return None,
    };
    let group = PathBuf::from(format!("{mount}{path}"));
    let number = |directory: &Path, name: &str| {
        fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok()
    };
    group
        .ancestors()
        .take_while(|directory| directory.starts_with(mount))
        .filter_map(|directory| {
            // For a group without a limit, the file contains a word, or a number that no machine reaches.
            let left = number(directory, most)?.saturating_sub(number(directory, used)?);
            Some(left.saturating_add(reclaimable(directory, lists)))
        })
        .min()
}

/// Returns the file pages that a group releases when it needs memory.
fn reclaimable(group: &Path, lists: &[&str]) -> u64 {
    let text = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let of = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    let of_list = |list: &&str| of(&format!("total_{list}")).or_else(|| of(list)).unwrap_or(0);
    lists.iter().map(of_list).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_while_no_more_is_left() {
        let now = Instant::now();
        let mut refusal = Refusal::default();
        // The free space was not queried before the request, so the space that is free now may have been freed since.
        refusal.remember(4096, Some(100), now);
        assert!(!refusal.was_refused(4096, 100, now));
        refusal.left = Some(8000);
        refusal.remember(4096, Some(9000), now);
        assert!(refusal.was_refused(4096, 8000, now));
        assert!(refusal.was_refused(5000, 7000, now));
        assert!(!refusal.was_refused(4095, 8000, now));
        assert!(!refusal.was_refused(4096, 8001, now));
        assert!(!refusal.was_refused(4096, 8000, now + REMEMBERED));
        refusal.left = Some(1 << 30);
        refusal.remember(4096, Some(1 << 30), now);
        assert!(!refusal.was_refused(4096, 0, now));
    }

    #[test]
    fn memory_is_read_as_it_is_written() {
        let text = "MemTotal:       24684084 kB\nMemFree:         1 kB\nMemAvailable:   22000000 kB\nSwapFree: 8 kB\n";
        assert_eq!(in_meminfo(text), Some(22_000_008 << 10));
        assert_eq!(in_meminfo("MemTotal: 5 kB\n"), None);
        assert_eq!(of_group("4:cpu,cpuacct:/x", &[]), None);
        assert_eq!(of_group("nonsense", &[]), None);
        if let Some(bytes) = of_memory() {
            assert!(bytes > 1 << 20, "{bytes}");
        }
    }
}
