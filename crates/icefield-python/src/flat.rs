//! Keys or values of results, one after another.

use arrow_array::builder::BooleanBufferBuilder;
use arrow_array::{ArrayRef, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::types::{Kind, Type};

/// Keys or values of one type.
pub struct Flat {
    data_type: Type,
    data: Vec<u8>,
    /// For types of variable length, where each one begins and the last one ends.
    ends: Vec<i64>,
}

impl Flat {
    pub fn with_capacity(data_type: Type, count: usize) -> Self {
        let mut ends = Vec::new();
        if data_type.width == 0 {
            ends.reserve(count + 1);
            ends.push(0);
        }
        Self { data_type, data: Vec::with_capacity(count * data_type.width), ends }
    }

    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
        if self.data_type.width == 0 {
            self.ends.push(self.data.len() as i64);
        }
    }

    pub fn len(&self) -> usize {
        match self.data_type.width {
            0 => self.ends.len() - 1,
            width => self.data.len() / width,
        }
    }

    pub fn get(&self, index: usize) -> &[u8] {
        match self.data_type.width {
            0 => &self.data[self.ends[index] as usize..self.ends[index + 1] as usize],
            width => &self.data[index * width..(index + 1) * width],
        }
    }

    pub fn append(&mut self, other: &Self) {
        for index in 0..other.len() {
            self.push(other.get(index));
        }
    }

    /// Returns an Arrow array of these values. `found` has a byte for each, 0 for null.
    pub fn into_array(self, found: Option<&[u8]>) -> PyResult<ArrayRef> {
        let len = self.len();
        let mut builder = ArrayData::builder(self.data_type.arrow()).len(len);
        if self.data_type.width == 0 {
            builder = builder.add_buffer(Buffer::from_vec(self.ends));
        }
        builder = if self.data_type.kind == Kind::Bool {
            builder.add_buffer(packed(&self.data))
        } else {
            // Arrow requires alignment, which the allocator gives all but small vectors.
            let data = Buffer::from_vec(self.data);
            if data.as_ptr().align_offset(8) == 0 {
                builder.add_buffer(data)
            } else {
                builder.add_buffer(Buffer::from_slice_ref(data.as_slice()))
            }
        };
        if let Some(found) = found.filter(|found| found.contains(&0)) {
            builder = builder.null_bit_buffer(Some(packed(found)));
        }
        let data = builder.build().map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(make_array(data))
    }
}

/// Returns bytes that are 0 or 1 as bits.
fn packed(bytes: &[u8]) -> Buffer {
    let mut bits = BooleanBufferBuilder::new(bytes.len());
    for &byte in bytes {
        bits.append(byte != 0);
    }
    bits.finish().into_inner()
}
