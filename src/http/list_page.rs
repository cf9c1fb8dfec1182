//! A page of a list, read from the store in bounded memory.
//!
//! An item may be small or a megabyte large, and nobody knows before it is read. So a page is read in chunks, few items
//! first and more while they turn out small, and the memory for the largest items there can be is taken before each
//! chunk. A page ends early when it is large enough or memory is short: the rest is behind its cursor.

use std::time::Duration;

use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use punctual_domain::fire::Fire;
use punctual_domain::id::{FireId, ScheduleId, TaskId};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{Page, StoreError};
use punctual_domain::task::Task;
use serde::Serialize;
use uuid::Uuid;

use super::memory::{Held, Memory};
use super::problem::Problem;
use super::{cannot_be_shown, cursor};

/// How much memory all pages together may take.
pub(crate) const ALL_PAGES_BYTES: usize = 256 * 1024 * 1024;
/// How long a page waits for its first chunk's memory.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where a page ends early.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// How many items are read at once: at first and where they are large, and at the most.
const SMALL_CHUNK: usize = 4;
const LARGE_CHUNK: usize = 32;
/// Up to which size on average items are small.
const SMALL_ITEM_BYTES: usize = 16 * 1024;

/// The largest item, a task: 1 MiB of payload, 64 KiB of result, 50 KiB of metadata, an error, and names.
const LARGEST_ITEM_BYTES: usize = 1280 * 1024;
/// What an item takes beside its texts.
const BARE_ITEM_BYTES: usize = 1024;

/// What is listed.
pub(crate) trait Item {
    /// What it is told apart by.
    type Id: Copy;

    fn id(&self) -> Self::Id;

    /// About as long as it is when written as JSON.
    fn size(&self) -> usize;
}

/// A page, with the memory that it takes.
pub(crate) struct ListPage<T: Item> {
    pub(crate) items: Vec<T>,
    /// The last of them, if more follow.
    pub(crate) next: Option<T::Id>,
    /// About as long as the page is when written as JSON.
    bytes: usize,
    /// Enough for the items and for the same once more as JSON.
    memory: Held,
}

impl<T: Item> ListPage<T> {
    /// Reads a page, chunk by chunk.
    ///
    /// # Errors
    /// When the store does not answer, or memory stays short.
    pub(crate) async fn read<Reading>(
        memory: &Memory,
        page: Page<T::Id>,
        read_chunk: impl Fn(Page<T::Id>) -> Reading,
    ) -> Result<Self, Problem>
    where
        Reading: Future<Output = Result<Vec<T>, StoreError>>,
    {
        let wanted = page.limit as usize;
        let mut chunk = SMALL_CHUNK.min(wanted);
        let Some(held) = memory.wait_for(worst(chunk), PATIENCE).await else {
            return Err(Problem::unavailable("too many large lists at once; try again"));
        };
        let mut read = Self { items: Vec::new(), next: page.after, bytes: 0, memory: held };
        loop {
            // One more than is wanted tells whether more follow.
            let found = read_chunk(Page { after: read.next, limit: chunk as u32 + 1 }).await?;
            let (bytes_before, are_all) = (read.bytes, found.len() <= chunk);
            let mut is_full = false;
            for item in found.into_iter().take(chunk) {
                is_full = read.bytes > PAGE_BYTES;
                if is_full {
                    break;
                }
                read.bytes += BARE_ITEM_BYTES + item.size();
                read.next = Some(item.id());
                read.items.push(item);
            }
            read.memory.shrink_to(2 * read.bytes);
            if are_all && !is_full {
                read.next = None;
                return Ok(read);
            }
            if is_full || read.bytes > PAGE_BYTES || read.items.len() == wanted {
                return Ok(read);
            }
            let average = (read.bytes - bytes_before) / chunk;
            let missing = wanted - read.items.len();
            let next_chunk = chunk_after(chunk, average).min(missing);
            let smallest = SMALL_CHUNK.min(missing);
            let more = [next_chunk, smallest].into_iter().find_map(|size| Some((size, memory.take(worst(size))?)));
            let Some((size, more)) = more else { return Ok(read) };
            read.memory.add(more);
            chunk = size;
        }
    }

    /// The page as JSON: each item as `view` shows it, and the cursor of the next page.
    pub(crate) fn show<'a, View: Serialize>(&'a self, view: impl Fn(&'a T) -> View) -> Result<Vec<u8>, Problem>
    where
        T::Id: Into<Uuid>,
    {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct List<View> {
            items: Vec<View>,
            next_cursor: Option<String>,
        }
        let next_cursor = self.next.map(|id| cursor::after(id.into()));
        let mut text = Vec::with_capacity(self.bytes);
        let list = List { items: self.items.iter().map(view).collect(), next_cursor };
        serde_json::to_writer(&mut text, &list).map_err(cannot_be_shown)?;
        Ok(text)
    }

    /// An answer that says where the next page is, and holds the memory of this one until the last of it was sent.
    pub(crate) fn respond(self, uri: &Uri, text: Vec<u8>) -> Response
    where
        T::Id: Into<Uuid>,
    {
        let next_cursor = self.next.map(|id| cursor::after(id.into()));
        let mut response = ([(header::CONTENT_TYPE, "application/json")], self.memory.with(text)).into_response();
        cursor::link(&mut response, uri, next_cursor.as_deref());
        response
    }
}

impl Item for Task {
    type Id = TaskId;

    fn id(&self) -> TaskId {
        self.id
    }

    fn size(&self) -> usize {
        let metadata: usize = self.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        let result = self.result.as_ref().map_or(0, |result| result.as_str().len());
        let error = self.error.as_ref().map_or(0, String::len);
        self.payload.as_str().len() + result + error + metadata
    }
}

impl Item for Schedule {
    type Id = ScheduleId;

    fn id(&self) -> ScheduleId {
        self.id
    }

    fn size(&self) -> usize {
        let definition = &self.definition;
        let metadata: usize = definition.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        let calendars: usize = definition.exclude_calendars.iter().map(String::len).sum();
        let texts = [&definition.description, &self.pause_note];
        let texts: usize = texts.iter().map(|text| text.as_ref().map_or(0, String::len)).sum();
        definition.payload.as_str().len() + metadata + calendars + texts
    }
}

impl Item for Fire {
    type Id = FireId;

    fn id(&self) -> FireId {
        self.id
    }

    fn size(&self) -> usize {
        self.task.as_ref().and_then(|task| task.error.as_ref()).map_or(0, String::len)
    }
}

/// How many items to read after so many of that size.
fn chunk_after(chunk: usize, average_bytes: usize) -> usize {
    if average_bytes <= SMALL_ITEM_BYTES { (chunk * 4).clamp(SMALL_CHUNK, LARGE_CHUNK) } else { SMALL_CHUNK }
}

/// The most memory that a chunk, the item behind it, and their JSON can take.
fn worst(chunk: usize) -> usize {
    2 * (chunk + 1) * LARGEST_ITEM_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use punctual_domain::json::Json;
    use punctual_domain::store::{Store, TaskFilter};
    use punctual_domain::task::NewTask;

    use super::*;

    /// A store with tasks whose payloads have these sizes; with their ids, newest first.
    async fn store_with(sizes: &[usize]) -> (tempfile::TempDir, Arc<dyn Store>, Vec<TaskId>) {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("punctual.db").display());
        let store = punctual_store::connect(&url, punctual_store::Options::default()).await.unwrap();
        let mut ids = Vec::new();
        for size in sizes {
            let mut task = NewTask::new("mail".parse().unwrap());
            task.payload = Json::from_stored(format!("\"{}\"", "x".repeat(*size)));
            ids.insert(0, task.id);
            store.create_tasks(vec![task], None).await.unwrap();
        }
        (folder, store, ids)
    }

    /// Reads page after page; the ids of each.
    async fn pages(store: &dyn Store, memory: &Memory, limit: u32) -> Vec<Vec<TaskId>> {
        let filter = TaskFilter::default();
        let mut pages = Vec::new();
        let mut after = None;
        loop {
            let page = ListPage::read(memory, Page { after, limit }, |page| store.tasks(&filter, page)).await.unwrap();
            assert!(page.bytes <= PAGE_BYTES + LARGEST_ITEM_BYTES, "{}", page.bytes);
            pages.push(page.items.iter().map(|task| task.id).collect());
            match page.next {
                Some(next) => after = Some(next),
                None => return pages,
            }
        }
    }

    #[tokio::test]
    async fn large_tasks_among_small_ones_are_neither_missed_nor_repeated() {
        let mut sizes = vec![10; 60];
        sizes.extend([1_000_000; 13]);
        sizes.extend([10; 30]);
        let (_folder, store, ids) = store_with(&sizes).await;
        let roomy = Memory::new(ALL_PAGES_BYTES);
        let tight = Memory::new(worst(SMALL_CHUNK));
        for memory in [&roomy, &tight] {
            for limit in [1, 4, 5, 50, 103, 1000] {
                let pages = pages(&*store, memory, limit).await;
                assert!(pages.iter().all(|page| page.len() <= limit as usize));
                assert_eq!(pages.concat(), ids, "limit {limit}");
            }
        }
        assert!(roomy.take(ALL_PAGES_BYTES).is_some(), "all memory was given back");
        assert_eq!(pages(&*store, &roomy, 20).await[0].len(), 20, "a page of small tasks is not cut short");
    }

    #[tokio::test]
    async fn with_little_memory_a_page_is_short() {
        let (_folder, store, ids) = store_with(&[10; 12]).await;
        let memory = Memory::new(worst(SMALL_CHUNK));
        let (filter, page) = (TaskFilter::default(), Page { after: None, limit: 10 });
        let page = ListPage::read(&memory, page, |page| store.tasks(&filter, page)).await.unwrap();
        assert_eq!((page.items.len(), page.next), (4, Some(ids[3])), "the rest is behind the cursor");
    }

    #[test]
    fn chunks_grow_only_while_tasks_are_small() {
        for (chunk, average, next) in
            [(4, 10, 16), (16, 10, 32), (32, 10, 32), (1, 10, 4), (4, 1 << 20, 4), (32, SMALL_ITEM_BYTES + 1, 4)]
        {
            assert_eq!(chunk_after(chunk, average), next, "{chunk} of {average} bytes");
        }
    }
}
