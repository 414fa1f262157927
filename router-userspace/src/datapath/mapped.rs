//! A table as memory: the elements of a `BPF_F_MMAPABLE` array, written without a system call each.
//!
//! The kernel's programs read the same pages at the same time, so every access here is an atomic one of
//! eight octets. An element of more than one word is not written at once: only elements that no reader can
//! reach are written ([`MappedArray::write`]), and what makes them reachable is one word
//! ([`MappedArray::publish`], [`MappedArray::exchange`]).

use std::io;
use std::marker::PhantomData;
use std::mem::{align_of, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use router_common::abi::{Cell, Credit, Generation, Line, Locals, LocationLine, Owner};
use router_common::trace::Rule;

/// Octets of a word.
const WORD: usize = size_of::<u64>();

/// A type that is nothing but words.
///
/// # Safety
/// Every octet is initialised (no padding), every combination of octets is a valid value, and size and
/// alignment are multiples of eight.
pub unsafe trait Words: Copy + Sized {}

// SAFETY: itself a word.
unsafe impl Words for u64 {}
// SAFETY: `repr(C)` integers and octets with explicit padding; `abi` asserts the sizes.
unsafe impl Words for Generation {}
// SAFETY: as above.
unsafe impl Words for Owner {}
// SAFETY: as above.
unsafe impl Words for Cell {}
// SAFETY: as above.
unsafe impl Words for Line {}
// SAFETY: likewise, in `trace`.
unsafe impl Words for Rule {}
// SAFETY: as above.
unsafe impl Words for Locals {}
// SAFETY: as above.
unsafe impl Words for LocationLine {}
// SAFETY: as above.
unsafe impl Words for Credit {}

/// The memory of an array map.
pub struct MappedArray<T> {
    words: NonNull<AtomicU64>,
    /// Octets mapped.
    mapped: usize,
    /// Elements.
    len: u32,
    element: PhantomData<T>,
}

// SAFETY: all access is through atomics; the mapping belongs to no thread.
unsafe impl<T: Words> Send for MappedArray<T> {}
// SAFETY: as above.
unsafe impl<T: Words> Sync for MappedArray<T> {}

impl<T: Words> MappedArray<T> {
    /// Words of an element. The kernel rounds an element up to a multiple of 8 octets; ours are one.
    const STRIDE: usize = {
        assert!(size_of::<T>().is_multiple_of(WORD) && align_of::<T>().is_multiple_of(WORD));
        size_of::<T>() / WORD
    };

    /// Maps an array of `len` elements of `T`.
    pub fn new(map: BorrowedFd<'_>, len: u32) -> io::Result<Self> {
        // SAFETY: asks for the system's page size.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let mapped = (len as usize * size_of::<T>()).next_multiple_of(page);
        // SAFETY: a new mapping at an address of the kernel's choice takes nothing from anybody.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { words, mapped, len, element: PhantomData })
    }

    /// Elements.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The words of an element; `None` beyond the end.
    fn element(&self, index: u32) -> Option<&[AtomicU64]> {
        self.elements(index, 1)
    }

    /// The words of `count` elements; `None` when some are beyond the end.
    fn elements(&self, first: u32, count: usize) -> Option<&[AtomicU64]> {
        let first = first as usize;
        if count > (self.len as usize).checked_sub(first)? {
            return None;
        }
        // SAFETY: `first + count <= len`, the mapping holds `len` elements of STRIDE words, starts on a
        // page and lives as long as `self`; memory shared with the kernel is only accessed as atomics.
        Some(unsafe {
            std::slice::from_raw_parts(self.words.as_ptr().add(first * Self::STRIDE), count * Self::STRIDE)
        })
    }

    /// Reads an element. Torn when it is written meanwhile, unless it is one word.
    pub fn read(&self, index: u32) -> Option<T> {
        let words = self.element(index)?;
        // SAFETY: any octets are a valid T, zeros too.
        let mut value: T = unsafe { std::mem::zeroed() };
        let to = std::ptr::from_mut(&mut value).cast::<u64>();
        for (i, word) in words.iter().enumerate() {
            // SAFETY: `i < STRIDE`, the words of T, which is aligned as a word.
            unsafe { to.add(i).write(word.load(Ordering::Acquire)) };
        }
        Some(value)
    }

    /// Writes elements that no reader can reach. `false`, and nothing is written, when some would lie
    /// beyond the end.
    #[must_use]
    pub fn write(&self, first: u32, values: &[T]) -> bool {
        let Some(words) = self.elements(first, values.len()) else { return false };
        // SAFETY: `values` is that many initialised, aligned words ([`Words`]).
        let from = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u64>(), words.len()) };
        for (to, from) in words.iter().zip(from) {
            to.store(*from, Ordering::Relaxed);
        }
        true
    }
}

impl MappedArray<u64> {
    /// Makes visible, with one word, what was written before. `false` beyond the end.
    #[must_use]
    pub fn publish(&self, index: u32, word: u64) -> bool {
        match self.element(index) {
            Some([slot]) => {
                slot.store(word, Ordering::Release);
                true
            }
            _ => false,
        }
    }

    /// Changes a word that others may change too; makes visible what was written before. Returns the
    /// word put there, `None` beyond the end.
    pub fn exchange(&self, index: u32, change: impl Fn(u64) -> u64) -> Option<u64> {
        let slot = self.element(index)?.first()?;
        let mut old = slot.load(Ordering::Acquire);
        loop {
            let new = change(old);
            match slot.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(new),
                Err(seen) => old = seen,
            }
        }
    }
}

impl<T> Drop for MappedArray<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, of that length; no reference into it outlives `self`.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    /// A file stands in for a map: mmap works alike, and needs no root.
    fn array<T: Words>(len: u32) -> MappedArray<T> {
        let file: File = tempfile::tempfile().expect("a temporary file");
        file.set_len(1 << 16).expect("it grows");
        MappedArray::new(file.as_fd(), len).expect("it maps")
    }

    #[test]
    fn elements_are_read_as_written_and_bounds_hold() {
        let cells = array::<Cell>(8);
        let mut cell = Cell::EMPTY;
        cell.sum = 0x1234;
        cell.piece[47] = 9;
        assert!(cells.write(6, &[cell, Cell::EMPTY]));
        assert_eq!(cells.read(6), Some(cell));
        assert_eq!(cells.read(7), Some(Cell::EMPTY));
        assert!(!cells.write(7, &[cell, cell]));
        assert_eq!(cells.read(7), Some(Cell::EMPTY), "a refused write wrote");
        assert!(!cells.write(u32::MAX, &[cell]));
        assert!(cells.write(8, &[]));
        assert_eq!(cells.read(8), None);
    }

    #[test]
    fn words_are_published_and_exchanged() {
        let words = array::<u64>(2);
        assert!(words.publish(1, 7));
        assert_eq!(words.exchange(1, |old| old + 1), Some(8));
        assert_eq!((words.read(0), words.read(1)), (Some(0), Some(8)));
        assert!(!words.publish(2, 7));
        assert_eq!(words.exchange(2, |old| old), None);
    }
}
