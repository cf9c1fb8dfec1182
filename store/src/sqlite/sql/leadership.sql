-- Who leads or led last, until when.
SELECT owner, epoch, expires_at FROM punctual_leaderships WHERE name = ?1
