//! The content of a medium: compact copies of every region, cheap to make, to change and to open.

/// The bytes of every region, as after a crash or a clean shutdown.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pub(super) regions: Vec<ImageRegion>,
}

/// One region of an image.
#[derive(Clone, Debug, Default)]
pub(super) struct ImageRegion {
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
    /// One bit for each 4-byte word that was last used through a volatile cell.
    pub(super) volatile: Vec<u64>,
}

impl Image {
    /// Returns each region's name and bytes.
    pub fn regions(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.regions.iter().map(|region| (region.name, region.bytes.as_slice()))
    }

    /// Returns the bytes of one region.
    #[must_use]
    pub fn region(&self, name: &str) -> Option<&[u8]> {
        self.regions().find(|(known, _)| *known == name).map(|(_, bytes)| bytes)
    }

    /// Returns the bytes of one region, to damage, shorten or lengthen them.
    pub fn region_mut(&mut self, name: &str) -> Option<&mut Vec<u8>> {
        self.regions.iter_mut().find(|region| region.name == name).map(|region| &mut region.bytes)
    }

    /// Adds a region, or replaces its bytes.
    pub fn set_region(&mut self, name: &'static str, bytes: Vec<u8>) {
        match self.region_mut(name) {
            Some(present) => *present = bytes,
            None => self.regions.push(ImageRegion { name, bytes, volatile: Vec::new() }),
        }
    }

    /// Removes a region, as if its file were gone.
    pub fn remove_region(&mut self, name: &str) {
        self.regions.retain(|region| region.name != name);
    }

    /// Fills every volatile word with garbage.
    pub(super) fn scramble(&mut self, seed: u64) {
        for (number, region) in self.regions.iter_mut().enumerate() {
            let region_seed = mix(seed ^ (number as u64) << 56);
            for (at, &bits) in region.volatile.iter().enumerate() {
                let mut left = bits;
                while left != 0 {
                    let word = at * 64 + left.trailing_zeros() as usize;
                    left &= left - 1;
                    if let Some(bytes) = region.bytes.get_mut(word * 4..word * 4 + 4) {
                        bytes.copy_from_slice(&garbage(region_seed, word).to_le_bytes());
                    }
                }
            }
        }
    }
}

/// Returns a word of garbage, often one that could be mistaken for a lock or a counter.
fn garbage(seed: u64, word: usize) -> u32 {
    let random = mix(seed.wrapping_add(word as u64));
    match random >> 61 {
        0 => 0,
        1 => u32::MAX,
        2 => 1,
        3 => random as u32 & 7,
        _ => random as u32,
    }
}

/// Scatters the bits of a number (the finaliser of `SplitMix64`).
pub(super) fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ n >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ n >> 31
}
