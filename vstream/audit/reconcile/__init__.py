"""
Reconcile, the third stage: where regions differ, message by message.

`reconciliation` is the whole stage. Each other module answers one question, in this order:

* `one_pass`: what digest does each bucket of messages have in each stream, and where is the order broken?
  `bucket_digests` computes both for one file or partition.
* `buckets`: which buckets differ?
* `differing_messages`: which messages of these buckets differ?
* `classify`: what is wrong with each of them? If a reader lacks it, `absence` says why, and `removal` whether its origin
  may have removed it.
* `deleted_everywhere`: which messages are gone from an origin and from all its readers?
* `order`: which messages does a reader have in a different order than their origin?
"""
