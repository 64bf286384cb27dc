UPDATE @orders SET version = version + 1, status = ? WHERE id = ? RETURNING version
