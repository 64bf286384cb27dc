DELETE FROM @queue WHERE lane = 1 AND seq IN ({seqs})
