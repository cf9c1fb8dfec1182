-- Removes a job that waits: one that nobody has begun, or that waits for its next try. Answers 1; 0 if it does not wait.
--
-- KEYS: the queue's wait, paused, prioritized, delayed and events, and the job.
-- ARGV: the job's id.
local found = redis.call('LREM', KEYS[1], 0, ARGV[1])
    + redis.call('LREM', KEYS[2], 0, ARGV[1])
    + redis.call('ZREM', KEYS[3], ARGV[1])
    + redis.call('ZREM', KEYS[4], ARGV[1])
if found == 0 then
    return 0
end
redis.call('DEL', KEYS[6], KEYS[6] .. ':logs')
redis.call('XADD', KEYS[5], 'MAXLEN', '~', '10000', '*', 'event', 'removed', 'jobId', ARGV[1], 'prev', 'waiting')
return 1
