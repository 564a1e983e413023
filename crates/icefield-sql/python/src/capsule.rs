//! The values in the capsules of DataFusion for Python.

use std::ffi::CStr;

use datafusion_ffi::execution::FFI_TaskContextProvider;
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::proto::physical_extension_codec::FFI_PhysicalExtensionCodec;
use datafusion_ffi::query_planner::FFI_QueryPlanner;
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// The name of a capsule with a query planner.
pub const QUERY_PLANNER: &CStr = c"datafusion_query_planner";
/// The name of a capsule with a codec of logical plans.
pub const LOGICAL_CODEC: &CStr = c"datafusion_logical_extension_codec";
/// The name of a capsule with a codec of physical plans.
pub const PHYSICAL_CODEC: &CStr = c"datafusion_physical_extension_codec";

/// Returns a copy of the planner in a capsule.
pub fn query_planner(capsule: &Bound<'_, PyCapsule>) -> PyResult<FFI_QueryPlanner> {
    let planner = capsule.pointer_checked(Some(QUERY_PLANNER))?.cast::<FFI_QueryPlanner>();
    // SAFETY: a capsule of this name holds a planner, as the protocol of DataFusion's package requires, for as long as
    // the capsule exists. The package has the version of this library: `same_version`.
    Ok(unsafe { planner.as_ref() }.clone())
}

/// Returns the codec of logical plans of a session.
pub fn logical_codec(session: &Bound<'_, PyAny>) -> PyResult<FFI_LogicalExtensionCodec> {
    let capsule = session.call_method0("__datafusion_logical_extension_codec__")?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let codec = capsule.pointer_checked(Some(LOGICAL_CODEC))?.cast::<FFI_LogicalExtensionCodec>();
    // SAFETY: as above.
    Ok(unsafe { codec.as_ref() }.clone())
}

/// Returns the codec of physical plans of a session.
pub fn physical_codec(session: &Bound<'_, PyAny>) -> PyResult<FFI_PhysicalExtensionCodec> {
    let capsule = session.call_method0("__datafusion_physical_extension_codec__")?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let codec = capsule.pointer_checked(Some(PHYSICAL_CODEC))?.cast::<FFI_PhysicalExtensionCodec>();
    // SAFETY: as above.
    Ok(unsafe { codec.as_ref() }.clone())
}

/// Returns what gives the functions of a session.
pub fn task_context_provider(session: &Bound<'_, PyAny>) -> PyResult<FFI_TaskContextProvider> {
    let capsule = session.call_method0("__datafusion_task_context_provider__")?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let provider = capsule
        .pointer_checked(Some(c"datafusion_task_context_provider"))?
        .cast::<FFI_TaskContextProvider>();
    // SAFETY: as above.
    Ok(unsafe { provider.as_ref() }.clone())
}

/// Returns an error unless the package with this version can exchange capsules with this library. Capsules of another
/// major version may have another layout, so this is checked before any of them is read.
pub fn same_version(package: &str) -> PyResult<()> {
    let ours = datafusion_ffi::version();
    if package.split('.').next() == Some(&ours.to_string()) {
        return Ok(());
    }
    Err(PyImportError::new_err(format!(
        "icefield_sql was built for version {ours} of the package datafusion, and this is version {package}"
    )))
}
