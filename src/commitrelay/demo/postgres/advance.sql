UPDATE @orders SET version = version + 1, status = %s WHERE id = %s RETURNING version
