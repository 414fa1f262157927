//! The process as the kernel sees it (proc(5)), under the names that every exporter uses.

use std::fs;

/// Figures of this process; what cannot be read is left out.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Process {
    /// User and system time, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Threads.
    pub threads: Option<u64>,
    /// Octets of address space.
    pub virtual_bytes: Option<u64>,
    /// Octets in memory.
    pub resident_bytes: Option<u64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// How many there may be.
    pub max_fds: Option<u64>,
    /// When it started, seconds since the Unix epoch.
    pub start_time_seconds: Option<f64>,
}

impl Process {
    /// As it is now.
    pub fn read() -> Self {
        let mut process = Self {
            open_fds: fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64),
            max_fds: fs::read_to_string("/proc/self/limits").ok().and_then(|text| max_fds(&text)),
            ..Self::default()
        };
        let boot = fs::read_to_string("/proc/stat").ok().and_then(|text| boot_time(&text));
        if let Ok(stat) = fs::read_to_string("/proc/self/stat") {
            process.take_stat(&stat, boot, ticks(), page());
        }
        process
    }

    /// Reads `/proc/self/stat`. `boot` is when the machine was booted, in seconds since the epoch.
    fn take_stat(&mut self, stat: &str, boot: Option<f64>, ticks: f64, page: u64) {
        // The name of the program stands in parentheses and may hold anything.
        let Some((_, rest)) = stat.rsplit_once(')') else { return };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // proc(5) numbers from 1, and the state is number 3.
        let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok());
        let (user, system, started) = (field(14), field(15), field(22));
        self.cpu_seconds = user.zip(system).map(|(user, system)| (user + system) as f64 / ticks);
        self.threads = field(20);
        self.virtual_bytes = field(23);
        self.resident_bytes = field(24).map(|pages| pages * page);
        self.start_time_seconds = boot.zip(started).map(|(boot, started)| boot + started as f64 / ticks);
    }
}

fn boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn max_fds(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn ticks() -> f64 {
    // SAFETY: asks for a number.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

fn page() -> u64 {
    // SAFETY: asks for a number.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_read() {
        let process = Process::read();
        let Process { cpu_seconds, threads, virtual_bytes, resident_bytes, open_fds, max_fds, .. } = process;
        assert!(cpu_seconds.is_some() && threads >= Some(1) && virtual_bytes > resident_bytes, "{process:?}");
        assert!(resident_bytes > Some(1 << 20) && open_fds > Some(2) && max_fds >= open_fds, "{process:?}");
        let started = process.start_time_seconds.expect("known");
        let now = crate::clock::unix_now().as_secs_f64();
        assert!(started > now - 86_400.0 && started < now + 2.0, "{started} {now}");
    }

    #[test]
    fn a_name_with_parentheses_moves_no_field() {
        let mut process = Process::default();
        let line = "7 (a) S (b)) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 12 0 1000 4096 3 rest";
        process.take_stat(line, Some(100.0), 100.0, 4096);
        assert_eq!((process.cpu_seconds, process.threads), (Some(2.0), Some(12)));
        assert_eq!((process.virtual_bytes, process.resident_bytes), (Some(4096), Some(12_288)));
        assert_eq!(process.start_time_seconds, Some(110.0));
        let before = process;
        process.take_stat("nonsense", None, 100.0, 4096);
        assert_eq!(process, before);
    }
}
