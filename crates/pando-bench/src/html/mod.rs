//! Records as one page for a browser: tables and charts, without external resources.
//!
//! Reading order: `page` (its contents), `table` (which fields are figures, and which are
//! settings), `chart` (axes and lines, as SVG), `escape`. The page is well-formed XML, too; every
//! text that does not come from this module goes through `escape`.

mod chart;
mod escape;
mod page;
mod table;

pub use page::page;
