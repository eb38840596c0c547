-- Deletes keys of a partition, for as long as its mark is the one that this recount has set: another
-- recount sets its own, and with the owner a mark is deleted, lost or restored.
-- KEYS[1] the partition's owner, then the keys to delete; ARGV[1] the mark.
-- Returns how many there were, or -1 if the mark is another, and nothing was deleted.
if redis.call('HGET', KEYS[1], 'recount') ~= ARGV[1] then return -1 end
return redis.call('UNLINK', unpack(KEYS, 2))
