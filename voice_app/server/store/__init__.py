"""Where talks are kept, so that a client that lost its connection finds its conversation again."""
