"""Operations between the processes of a mesh."""
