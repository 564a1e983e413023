//! Hash functions: good, bad and constant.

use std::hash::{BuildHasher, Hasher};

use icefield::DlhtBuildHasher;

/// The hash function of a history: the default one, one with eight different results, or a constant one.
#[derive(Clone, Copy)]
pub enum Spread {
    Good(DlhtBuildHasher),
    Eight(DlhtBuildHasher),
    Constant(DlhtBuildHasher),
}

impl Spread {
    pub fn any(seed: u64) -> Self {
        let good = DlhtBuildHasher::default();
        match seed % 4 {
            0 => Self::Eight(good),
            1 => Self::Constant(good),
            _ => Self::Good(good),
        }
    }
}

pub struct Spreading(Spread, <DlhtBuildHasher as BuildHasher>::Hasher);

impl BuildHasher for Spread {
    type Hasher = Spreading;
    fn build_hasher(&self) -> Spreading {
        let (Self::Good(good) | Self::Eight(good) | Self::Constant(good)) = self;
        Spreading(*self, good.build_hasher())
    }
}

impl Hasher for Spreading {
    fn write(&mut self, bytes: &[u8]) {
        self.1.write(bytes);
    }
    fn finish(&self) -> u64 {
        match self.0 {
            Spread::Good(_) => self.1.finish(),
            Spread::Eight(_) => self.1.finish() & 7,
            Spread::Constant(_) => 0,
        }
    }
}
