//! The key and value types in a superblock: their names, and the forms in which they are stored.

use crate::storage::Medium;
use crate::storage::superblock::Identity;
use crate::types::{Form, Types};
use crate::{Error, Result};

/// The superblock parameters with the forms of keys and values.
const KEY_FORM: usize = 4;
const VALUE_FORM: usize = 5;

/// Encodes a form as a superblock parameter.
fn form_code(form: Form) -> u64 {
    match form {
        Form::Word => 1,
        Form::Fixed(bytes) => 2 | (bytes as u64) << 8,
        Form::Variable => 3,
    }
}

fn form_of(code: u64) -> Option<Form> {
    match code & 0xFF {
        1 => Some(Form::Word),
        2 => usize::try_from(code >> 8).ok().map(Form::Fixed),
        3 => Some(Form::Variable),
        _ => None,
    }
}

/// Returns the forms of a table's keys and values; `None` if the superblock's values are invalid.
pub(crate) fn forms(identity: &Identity) -> Option<[Form; 2]> {
    Some([form_of(identity.params[KEY_FORM])?, form_of(identity.params[VALUE_FORM])?])
}

/// Returns whether a table's keys are words.
pub(crate) fn key_is_word(identity: &Identity) -> bool {
    identity.params[KEY_FORM] == form_code(Form::Word)
}

/// The names and forms of a table's key and value types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredTypes([(String, u64); 2]);

impl StoredTypes {
    pub(crate) fn of(types: &Types) -> Self {
        Self::named((types.key.name, types.key.form), (types.value.name, types.value.form))
    }

    pub(crate) fn named(key: (&str, Form), value: (&str, Form)) -> Self {
        Self([key, value].map(|(name, form)| (name.to_owned(), form_code(form))))
    }

    /// Returns the types in a superblock.
    pub(crate) fn stored(identity: &Identity) -> Self {
        Self([
            (identity.key_type.clone(), identity.params[KEY_FORM]),
            (identity.value_type.clone(), identity.params[VALUE_FORM]),
        ])
    }

    /// Stores the types in the identity of a new table.
    pub(crate) fn inscribe(&self, identity: &mut Identity) {
        let [(key_type, key_form), (value_type, value_form)] = self.0.clone();
        (identity.key_type, identity.value_type) = (key_type, value_type);
        identity.params[KEY_FORM] = key_form;
        identity.params[VALUE_FORM] = value_form;
    }

    /// Returns an error if the design or the types in the superblock differ from `design` or from these types.
    pub(crate) fn check(
        &self,
        storage: &impl Medium,
        identity: &Identity,
        design: &str,
    ) -> Result<()> {
        if identity.design == design && *self == Self::stored(identity) {
            return Ok(());
        }
        let [(key, _), (value, _)] = &self.0;
        let expected = format!("{design}<{key}, {value}>");
        let mut found =
            format!("{}<{}, {}>", identity.design, identity.key_type, identity.value_type);
        if found == expected {
            found.push_str(" with types that are stored in another form");
        }
        Err(Error::TypeMismatch { path: storage.path().into(), expected, found })
    }
}
